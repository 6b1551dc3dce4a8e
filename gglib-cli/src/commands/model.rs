//! `gglib model`: the `[models]` of the configuration.

use std::path::Path;

use serde_json::{Value, json};

use crate::args::{Common, Model};
use crate::config_file::{ConfigFile, Entry};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{settings, ui};

pub(super) fn run(args: &Model, common: &Common) -> Result<Exit, CliError> {
    match args {
        Model::List { json } => list(*json, common),
        Model::Add { name, path, alias, context, parallel } => {
            let entry =
                Entry { path: gguf(path)?, aliases: alias.clone(), context: *context, parallel: *parallel };
            let mut file = ConfigFile::open(&settings::path(common)?)?;
            file.set_model(name, &entry)?;
            file.save()?;
            ui::line(&format!("Added {name}; a running endpoint takes it over in a few seconds."));
            Ok(Exit::Success)
        }
        Model::Remove { name } => {
            let mut file = ConfigFile::open(&settings::path(common)?)?;
            if !file.remove_model(name) {
                return Err(CliError::Model(format!(
                    "no model `{name}` is configured; see `gglib model list`"
                )));
            }
            file.save()?;
            ui::line(&format!("Removed {name}; its file stays where it is."));
            Ok(Exit::Success)
        }
    }
}

/// The absolute path of a model file, which must look like one.
pub(super) fn gguf(path: &Path) -> Result<std::path::PathBuf, CliError> {
    let bad = |why: &str| CliError::Model(format!("{}: {why}", path.display()));
    let mut magic = [0; 4];
    let mut file = std::fs::File::open(path).map_err(|error| bad(&error.to_string()))?;
    std::io::Read::read_exact(&mut file, &mut magic).map_err(|_| bad("not a GGUF model file"))?;
    if &magic != b"GGUF" {
        return Err(bad("not a GGUF model file"));
    }
    std::path::absolute(path).map_err(|error| bad(&error.to_string()))
}

fn list(as_json: bool, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    if as_json {
        let models: Vec<Value> = config
            .models
            .iter()
            .map(|(name, spec)| {
                json!({
                    "name": name.as_str(),
                    "path": spec.path,
                    "aliases": spec.aliases,
                    "context": spec.context,
                    "parallel": spec.parallel,
                })
            })
            .collect();
        ui::line(&Value::Array(models).to_string());
    } else if config.models.is_empty() {
        ui::line("No models yet. `gglib model add NAME FILE` adds one, `gglib up` gets one.");
    } else {
        for (name, spec) in &config.models {
            let also = if spec.aliases.is_empty() {
                String::new()
            } else {
                format!(" ({})", spec.aliases.join(", "))
            };
            ui::line(&format!("{name}{also}  {}", spec.path.display()));
        }
    }
    Ok(Exit::Success)
}
