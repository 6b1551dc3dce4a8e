//! Edits of `gglib.toml` that leave everything else in it as it is, comments included.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gglib_core::config::KEYS;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use crate::error::CliError;
use crate::settings;

/// The file, open for edits. Nothing is written before [`save`](Self::save).
pub(crate) struct ConfigFile {
    path: PathBuf,
    document: DocumentMut,
}

/// What is to be written of a model. What is empty or `None` stays as it is in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) aliases: Vec<String>,
    pub(crate) context: Option<u32>,
    pub(crate) parallel: Option<u32>,
}

impl ConfigFile {
    /// Opens the file; one that does not exist is empty.
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let text = settings::read(path)?.unwrap_or_default();
        let document =
            text.parse().map_err(|source| CliError::EditConfig { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), document })
    }

    /// Sets `server.listen`.
    pub(crate) fn set_listen(&mut self, address: &str) -> Result<(), CliError> {
        self.edit(|document| {
            section(document, "server")?.insert("listen", value(address));
            Ok(())
        })
    }

    /// Adds a model, or changes the keys that `entry` gives of one that is there.
    pub(crate) fn set_model(&mut self, name: &str, entry: &Entry) -> Result<(), CliError> {
        self.edit(|document| {
            let models = section(document, "models")?;
            models.set_implicit(true);
            let model = section(models, name)
                .map_err(|wrong| NotTable { key: format!("models.{}", wrong.key), ..wrong })?;
            model.insert("path", value(entry.path.to_string_lossy().into_owned()));
            if !entry.aliases.is_empty() {
                model.insert("aliases", value(entry.aliases.iter().collect::<Array>()));
            }
            for (key, number) in [("context", entry.context), ("parallel", entry.parallel)] {
                if let Some(number) = number {
                    model.insert(key, value(i64::from(number)));
                }
            }
            Ok(())
        })
    }

    /// Removes a model; whether it was there.
    pub(crate) fn remove_model(&mut self, name: &str) -> bool {
        let models = self.document.get_mut("models").and_then(Item::as_table_like_mut);
        models.is_some_and(|models| models.remove(name).is_some())
    }

    fn edit(&mut self, change: impl FnOnce(&mut Table) -> Result<(), NotTable>) -> Result<(), CliError> {
        change(self.document.as_table_mut()).map_err(|NotTable { key, found }| CliError::NotTable {
            path: self.path.clone(),
            key,
            found,
        })
    }

    /// Checks the edited text like any configuration, then replaces the file in one step.
    pub(crate) fn save(&self) -> Result<(), CliError> {
        let text = self.document.to_string();
        settings::load_from(&self.path, Some(&text), &[])?;
        write(&self.path, &text)
    }
}

/// Replaces the file at `path` in one step: a crash leaves the old one. One that is there keeps its permissions, and if
/// `path` is a link, it is the file that it leads to.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |source| CliError::WriteConfig { path: path.to_owned(), source };
    let before = fs::canonicalize(path).ok();
    let path = before.as_deref().unwrap_or(path);
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    if before.is_some() {
        let permissions = fs::metadata(path).map_err(failed)?.permissions();
        file.as_file().set_permissions(permissions).map_err(failed)?;
    }
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// A configuration with every key and its default, commented out.
pub(crate) fn template() -> String {
    let mut text =
        vec!["# gglib's configuration. Every key is optional; what is shown is its default.".to_owned()];
    let mut last = "";
    for key in KEYS {
        let (section, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if section != last {
            let shown = section.replace('*', "NAME");
            let mark = if key.is_pattern() { "# " } else { "" };
            text.push(format!("\n{mark}[{shown}]"));
            last = section;
        }
        let default = if key.default.is_empty() { "…" } else { key.default };
        text.push(format!("# {}\n# {name} = {default}", key.doc));
    }
    text.join("\n") + "\n"
}

/// A key that ought to be a table.
struct NotTable {
    key: String,
    found: String,
}

fn section<'a>(parent: &'a mut Table, name: &str) -> Result<&'a mut Table, NotTable> {
    let item = parent.entry(name).or_insert_with(toml_edit::table);
    if !item.is_table() {
        // An inline table, such as `models = { a = { … } }`, is opened up.
        let inline = std::mem::take(item).into_table();
        let not_table =
            |other: Item| NotTable { key: name.to_owned(), found: other.to_string().trim().to_owned() };
        *item = Item::Table(inline.map_err(not_table)?);
    }
    Ok(item.as_table_mut().expect("it is one, or was made one just now"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("gglib.toml");
        fs::write(&path, text).unwrap();
        (home, path)
    }

    fn added(text: &str, entry: &Entry) -> Result<String, String> {
        let (_home, path) = file(text);
        let mut file = ConfigFile::open(&path).unwrap();
        let shown = |error: CliError| error.to_string().replace(&path.display().to_string(), "FILE");
        file.set_model("a", entry).map_err(shown)?;
        file.save().map_err(shown)?;
        Ok(fs::read_to_string(&path).unwrap())
    }

    fn entry() -> Entry {
        Entry { path: "/a".into(), ..Entry::default() }
    }

    #[test]
    fn what_is_given_is_written_and_checked_and_what_is_not_stays() {
        let before = "[models.a]\npath = \"/b\"\ncontext = 512\nparallel = 4\n";
        let after = |context, parallel| added(before, &Entry { context, parallel, ..entry() });
        assert_eq!(after(None, None).unwrap(), before.replace("/b", "/a"));
        assert_eq!(
            after(Some(256), Some(1)).unwrap(),
            "[models.a]\npath = \"/a\"\ncontext = 256\nparallel = 1\n"
        );
        let refused =
            |key| format!("`models.a.{key}` in FILE: expected a whole number of at least 1, found 0");
        assert_eq!(after(None, Some(0)).unwrap_err(), refused("parallel"));
        assert_eq!(after(Some(0), None).unwrap_err(), refused("context"));
    }

    #[test]
    fn tables_of_any_shape_are_edited_and_what_is_no_table_is_named() {
        let expected = "path = \"/a\"\n";
        for before in ["", "models = { a = { path = \"/b\" } }\n", "models.a.path = \"/b\"\n", "[models]\n"] {
            let after = added(before, &entry()).unwrap();
            assert!(after.ends_with(expected), "{before} became {after}");
        }
        for (before, key, found) in [
            ("models = 3\n", "models", "3"),
            ("[models]\na = \"/b\"\n", "models.a", "\"/b\""),
            ("models = [1]\n", "models", "[1]"),
        ] {
            let expected = format!("`{key}` in FILE has to be a table, and is {found}; correct it by hand");
            assert_eq!(added(before, &entry()).unwrap_err(), expected);
        }
        let tables = added("[[models]]\npath = \"/b\"\n", &entry()).unwrap_err();
        assert!(tables.starts_with("`models` in FILE has to be a table"), "{tables}");
    }

    #[test]
    fn a_link_stays_one_and_the_file_keeps_its_permissions() {
        let (home, path) = file("");
        let link = home.path().join("link.toml");
        symlink("gglib.toml", &link).unwrap();
        for mode in [0o600, 0o640] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write(&link, "# new\n").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&path).unwrap(), "# new\n");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }
}
