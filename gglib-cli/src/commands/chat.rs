//! `gglib chat`: a conversation, line by line.

use std::io::IsTerminal;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::args::{Chat, Common};
use crate::client::{self, Client};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{settings, ui};

pub(super) async fn run(args: Chat, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    let url = client::url(&args.target, &config);
    let model = client::model(args.model, &url, &config).await?;
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        ui::note(&format!("Talking to {model}. An empty line or Ctrl-D ends."));
    }
    let rules = client::rules(&config, &model, args.no_retry);
    let client = Client::new(&url, model, rules)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut messages: Vec<Value> = Vec::new();
    loop {
        if interactive {
            ui::prompt("> ");
        }
        let line = lines.next_line().await.map_err(CliError::Stdin)?;
        let Some(line) = line.filter(|line| !line.trim().is_empty()) else {
            return Ok(Exit::Success);
        };
        messages.push(json!({ "role": "user", "content": line }));
        match client.answer(&messages).await {
            Ok(None) => return Ok(Exit::Success),
            Ok(Some(answer)) => messages.push(json!({ "role": "assistant", "content": answer })),
            // A person may try again; a script must hear of it.
            Err(error) if interactive => {
                ui::failure(&error);
                messages.pop();
            }
            Err(error) => return Err(error),
        }
    }
}
