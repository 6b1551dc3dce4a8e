//! `gglib config`.

use serde_json::json;

use crate::args::{Common, Config};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{config_file, settings, ui};

pub(super) fn run(args: &Config, common: &Common) -> Result<Exit, CliError> {
    let path = settings::path(common)?;
    match args {
        Config::Path => ui::line(&path.display().to_string()),
        Config::Check { json: as_json } => {
            if settings::read(&path)?.is_none() {
                return Err(CliError::NoConfig(path));
            }
            let config = settings::load(common, &[])?;
            settings::warn_of_lints(&config);
            for (name, spec) in &config.models {
                if !spec.path.is_file() {
                    ui::warning(&format!("model `{name}`: there is no file {}", spec.path.display()));
                }
            }
            let bound = config.bound();
            if *as_json {
                ui::line(
                    &json!({
                        "path": path,
                        "models": config.models.len(),
                        "bound": {
                            "seconds": bound.total.as_secs_f64(),
                            "waits": bound.waits,
                            "attempts": bound.attempts,
                            "repairs": bound.repairs,
                        },
                    })
                    .to_string(),
                );
            } else {
                ui::line(&format!("{} is valid; models: {}", path.display(), config.models.len()));
                ui::line(&bound.to_string());
            }
        }
        Config::Init => {
            if settings::read(&path)?.is_some() {
                return Err(CliError::ConfigExists(path));
            }
            config_file::write(&path, &config_file::template())?;
            ui::line(&format!("Wrote {}", path.display()));
        }
    }
    Ok(Exit::Success)
}
