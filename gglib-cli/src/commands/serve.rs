//! `gglib serve`: the endpoint, from the configuration.

use crate::args::{Common, Serve};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::exit::Exit;
use crate::reload::Reload;
use crate::shutdown::{Stop, serve_until_stopped};
use crate::{install, settings, ui};

pub(super) async fn run(args: &Serve, common: &Common) -> Result<Exit, CliError> {
    let mut stop = Stop::listen().map_err(CliError::Runtime)?;
    let flags: Vec<_> = args.listen.iter().map(|listen| ("server.listen", listen.clone())).collect();
    let mut reload = Reload::watch(common, &flags)?;
    let config = settings::load(common, &flags)?;
    settings::warn_of_lints(&config);
    if config.models.is_empty() {
        ui::warning("no model is configured; add one with `gglib model add NAME FILE`, or run `gglib up`");
    }
    let binary = install::engine(&config)?;
    let endpoint = Endpoint::start(&config, binary).await?;
    ui::line(&format!("gglib serves {} at {}", models(config.models.len()), endpoint.base_url()));
    serve_until_stopped(endpoint, &mut reload, &mut stop).await
}

fn models(count: usize) -> String {
    if count == 1 { "1 model".to_owned() } else { format!("{count} models") }
}
