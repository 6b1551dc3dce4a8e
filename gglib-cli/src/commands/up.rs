//! `gglib up`: from nothing to a first answer, in five steps, each of which may be done already.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use gglib_core::config::Config;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::args::{Common, Up};
use crate::commands::model;
use crate::config_file::{ConfigFile, Entry};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::exit::Exit;
use crate::install::{self, Consent};
use crate::reload::Reload;
use crate::shutdown::{Stop, serve_until_stopped};
use crate::{choice, client, settings, ui};

use self::instructions::Instructions;

mod instructions;

/// The starter model's name.
const STARTER: &str = "smollm2";
/// The starter model's context: what it was trained for is 8192; half of that is plenty for a start.
const STARTER_CONTEXT: u32 = 4096;
/// Longest wait for a running endpoint to take over what has just been written; it does so within about three seconds.
const TAKEN_OVER: Duration = Duration::from_secs(10);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(200);
const QUESTION: &str = "What is the capital of France? Answer in one sentence.";

pub(super) async fn run(args: &Up, common: &Common) -> Result<Exit, CliError> {
    let mut stop = Stop::listen().map_err(CliError::Runtime)?;
    tokio::select! {
        outcome = set_up(args, common) => match outcome? {
            Ready::Started(endpoint, mut reload) => {
                serve_until_stopped(*endpoint, &mut reload, &mut stop).await
            }
            Ready::Running => Ok(Exit::Success),
        },
        () = stop.requested() => Ok(Exit::Interrupted),
    }
}

/// What the set-up came to.
enum Ready {
    /// An endpoint of our own, which now has to be kept running.
    Started(Box<Endpoint>, Reload),
    /// Another process's.
    Running,
}

async fn set_up(args: &Up, common: &Common) -> Result<Ready, CliError> {
    let consent = if args.yes { Consent::Given } else { Consent::Ask };
    let flags: Vec<_> = args.port.iter().map(|port| ("server.listen", format!("127.0.0.1:{port}"))).collect();
    let path = settings::path(common)?;
    let before = settings::load_from(&path, settings::read(&path)?.as_deref(), &flags)?;

    let binary = install::engine_or_install(&before, consent).await?;
    ui::step(1, "engine", &binary.display().to_string());
    let (model, added) = choose_model(args, &before, consent).await?;
    let written = write_config(&path, args, &model, added.as_ref())?;
    let reload = Reload::watch(common, &flags)?;
    let config = settings::load_from(&path, settings::read(&path)?.as_deref(), &flags)?;
    let file =
        config.catalog().resolve(&model).map(|(_, spec)| spec.path.display().to_string()).unwrap_or_default();
    ui::step(2, "model", &format!("{model} ({file})"));
    ui::step(3, "config", &format!("{} ({})", path.display(), if written { "written" } else { "unchanged" }));

    let (ready, url) = match Endpoint::start(&config, binary).await {
        Ok(endpoint) => {
            let url = endpoint.base_url();
            (Ready::Started(Box::new(endpoint), reload), url)
        }
        // Run twice, the second `up` shows that the first one works.
        Err(CliError::AddressTaken(address)) => {
            let url = format!("http://{address}/v1");
            match client::get_json(&url, "/status").await {
                Ok(status) if status["version"].is_string() => {
                    wait_for(&model, &url).await?.ok_or_else(|| CliError::OtherConfiguration {
                        address,
                        model: model.clone(),
                        config: path.clone(),
                    })?;
                    (Ready::Running, url)
                }
                _ => return Err(CliError::AddressTaken(address)),
            }
        }
        Err(error) => return Err(error),
    };
    let how = if matches!(ready, Ready::Running) { " (was running already)" } else { "" };
    ui::step(4, "endpoint", &format!("{url}{how}"));

    let asked = Instant::now();
    let answer = ask(&url, &model, &config).await?;
    ui::step(5, "answer", &format!("\"{answer}\" ({:.1} s)", asked.elapsed().as_secs_f64()));
    let ours = matches!(ready, Ready::Started(..));
    ui::line(&Instructions::new(&path, &url, &model).text(ours));
    Ok(ready)
}

/// Waits until the running endpoint at `url` has the model; `None` if it does not come to have it.
async fn wait_for(model: &str, url: &str) -> Result<Option<()>, CliError> {
    let since = Instant::now();
    let mut told = false;
    loop {
        if client::find(&client::models(url).await?, model).is_some() {
            return Ok(Some(()));
        }
        if since.elapsed() >= TAKEN_OVER {
            return Ok(None);
        }
        if !told {
            ui::note(&format!("waiting for the running endpoint to take {model} over …"));
            told = true;
        }
        sleep(LOOK).await;
    }
}

/// The model to use, and what to write of it into the configuration.
async fn choose_model(
    args: &Up,
    config: &Config,
    consent: Consent,
) -> Result<(String, Option<Entry>), CliError> {
    let entry = |path: PathBuf, context| Entry { path, context, ..Entry::default() };
    match &args.model {
        Some(name) if config.catalog().resolve(name).is_ok() => Ok((name.clone(), None)),
        Some(file) if Path::new(file).is_file() => {
            let path = model::gguf(Path::new(file))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
            Ok((name, Some(entry(path, None))))
        }
        Some(name) => {
            let message =
                format!("`{name}` is neither a configured model nor a file; see `gglib model list`");
            Err(CliError::Model(message))
        }
        None => {
            if let Some((first, _)) = choice::first(config) {
                return Ok((first.to_string(), None));
            }
            let path = install::starter_model(consent).await?;
            Ok((STARTER.to_owned(), Some(entry(path, Some(STARTER_CONTEXT)))))
        }
    }
}

/// Writes what is new; whether anything was.
fn write_config(path: &Path, args: &Up, model: &str, added: Option<&Entry>) -> Result<bool, CliError> {
    let Some(entry) = added else { return Ok(false) };
    let is_new = settings::read(path)?.is_none();
    let mut file = ConfigFile::open(path)?;
    if let Some(port) = args.port.filter(|port| is_new && *port != 0) {
        file.set_listen(&format!("127.0.0.1:{port}"))?;
    }
    file.set_model(model, entry)?;
    file.save()?;
    Ok(true)
}

/// One real request through the endpoint.
async fn ask(url: &str, model: &str, config: &Config) -> Result<String, CliError> {
    let client = client::completions(url, config.retry_rules(model).clone())?;
    let body = json!({
        "model": model,
        "messages": [{ "role": "user", "content": QUESTION }],
        "max_tokens": 64,
        "temperature": 0,
    });
    let answer = client.complete(Bytes::from(body.to_string())).await?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    Ok(answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().trim().to_owned())
}
