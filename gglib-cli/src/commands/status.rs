//! `gglib status`: what the running endpoint says of itself.

use crate::args::{Common, Status};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{client, settings, ui, view};

pub(super) async fn run(args: &Status, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    let url = client::url(&args.target, &config);
    let status = client::get_json(&url, "/status").await?;
    ui::part(&if args.json { format!("{status}\n") } else { view::render(&url, &status, view::now()) });
    Ok(Exit::Success)
}
