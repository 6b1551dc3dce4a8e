//! Edits of `gglib.toml` that leave everything else in it as it is, comments included.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gglib_core::config::KEYS;
use gglib_core::model::ModelSpec;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use crate::error::CliError;
use crate::settings;

/// The file, open for edits. Nothing is written before [`save`](Self::save).
pub(crate) struct ConfigFile {
    path: PathBuf,
    document: DocumentMut,
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
    pub(crate) fn set_listen(&mut self, address: &str) {
        section(self.document.as_table_mut(), "server").insert("listen", value(address));
    }

    /// Adds a model, or changes the keys that `spec` gives to one that is there.
    pub(crate) fn set_model(&mut self, name: &str, spec: &ModelSpec) {
        let models = section(self.document.as_table_mut(), "models");
        models.set_implicit(true);
        let model = section(models, name);
        model.insert("path", value(spec.path.to_string_lossy().into_owned()));
        if !spec.aliases.is_empty() {
            model.insert("aliases", value(spec.aliases.iter().collect::<Array>()));
        }
        if let Some(context) = spec.context {
            model.insert("context", value(i64::from(context)));
        }
        if spec.parallel > 1 {
            model.insert("parallel", value(i64::from(spec.parallel)));
        }
    }

    /// Removes a model; whether it was there.
    pub(crate) fn remove_model(&mut self, name: &str) -> bool {
        let models = self.document.get_mut("models").and_then(Item::as_table_like_mut);
        models.is_some_and(|models| models.remove(name).is_some())
    }

    /// Checks the edited text like any configuration, then replaces the file in one step.
    pub(crate) fn save(&self) -> Result<(), CliError> {
        let text = self.document.to_string();
        settings::load_from(&self.path, Some(&text), &[])?;
        write(&self.path, &text)
    }
}

/// Replaces the file at `path` in one step: a crash leaves the old one.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |source| CliError::WriteConfig { path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
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

fn section<'a>(parent: &'a mut Table, name: &str) -> &'a mut Table {
    let item = parent.entry(name).or_insert_with(toml_edit::table);
    if !item.is_table() {
        // An inline table, such as `models = { a = { … } }`, is opened up; anything else is replaced, which
        // the check before saving would have refused in any case.
        let inline = std::mem::take(item).into_table().unwrap_or_default();
        *item = Item::Table(inline);
    }
    item.as_table_mut().expect("made a table just now")
}
