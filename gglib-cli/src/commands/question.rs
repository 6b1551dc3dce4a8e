//! `gglib q`: one question, one answer.

use std::io::{IsTerminal, Read};

use serde_json::json;

use crate::args::{Common, Question};
use crate::client::{self, Client};
use crate::error::CliError;
use crate::exit::Exit;
use crate::settings;

pub(super) async fn run(args: Question, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    let url = client::url(&args.target, &config);
    let model = client::model(args.model, &url, &config).await?;
    let rules = client::rules(&config, &model, args.no_retry);
    let client = Client::new(&url, model, rules)?;
    let content = match context()? {
        Some(context) => format!("{context}\n\n{}", args.text),
        None => args.text,
    };
    let message = json!({ "role": "user", "content": content });
    client.answer(&[message]).await?;
    Ok(Exit::Success)
}

/// What was piped in.
fn context() -> Result<Option<String>, CliError> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut context = String::new();
    stdin.read_to_string(&mut context).map_err(CliError::Stdin)?;
    Ok(Some(context).filter(|context| !context.trim().is_empty()))
}
