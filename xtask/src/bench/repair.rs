//! Tool calls of a real small model, without repair and with it: how many could be run, and what that costs.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use gglib_runtime::install::{ENGINE, install};
use serde_json::{Value, json};

use self::prompts::Prompt;
use self::table::{Cell, Outcome, Turn};
use super::swap;
use crate::endpoint::Endpoint;

mod prompts;
mod table;

const MODEL: &str = "gemma3";
const MAX_TOKENS: u32 = 120;
const TEMPERATURES: [f64; 3] = [1.2, 0.7, 0.0];

/// What holds the model to its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Calls {
    /// Nothing: the relay takes whatever it writes for a call
    Raw,
    /// The engine's own grammar, by a template with tools
    Taught,
    /// Nothing, by a template without tools, although a call is demanded
    Due,
}

impl Calls {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Where calls come from, and what is compared there; the first endpoint is the one without repair.
struct Source {
    name: &'static str,
    calls: Calls,
    /// `tool_choice`.
    choice: &'static str,
    /// What each endpoint is called, whether it repairs, and its engine.
    endpoints: &'static [(&'static str, bool, Engine)],
}

#[derive(Clone, Copy)]
enum Engine {
    /// With the model's own template, which knows no tools.
    Untaught,
    /// With a template that knows them.
    Taught,
    /// The same through the relay that only parses.
    Relayed,
    /// Again, with a template that seems to know none.
    RelayedUntaught,
}

const SOURCES: &[Source] = &[
    Source {
        name: "raw calls, through the relay",
        calls: Calls::Raw,
        choice: "auto",
        endpoints: &[
            ("without", false, Engine::Relayed),
            ("`required`", true, Engine::Relayed),
            ("our grammar", true, Engine::RelayedUntaught),
        ],
    },
    Source {
        name: "a template with tools, straight",
        calls: Calls::Taught,
        choice: "auto",
        endpoints: &[("without", false, Engine::Taught), ("with", true, Engine::Taught)],
    },
    Source {
        name: "no template for tools, a call is due",
        calls: Calls::Due,
        choice: "required",
        endpoints: &[("without", false, Engine::Untaught), ("our grammar", true, Engine::Untaught)],
    },
];

/// Measures `turns` seeded turns of each cell, the endpoints of a source in turns; of every source, or of one. `xtask` is this program; `gglib` and
/// the relay lie beside it, engine and model in the target directory, the chat template below `root`.
///
/// # Errors
/// When something is missing or does not start.
pub fn run(root: &Path, xtask: &Path, turns: u32, only: Option<Calls>) -> Result<()> {
    let bench = Bench::new(root, xtask)?;
    println!(
        "Changed from the defaults: context 2048, max_tokens {MAX_TOKENS}, temperature and seed; repair where it says so; \
         stop \"</tool_call>\", because the model does not stop by itself.\n\
         {turns} turns each, with two worked examples before. Load average before: {}.\n\
         valid: calls, and all of them by their schemas. right: what was asked for.\n\
         again: a second request was made; refused: it was not, since others had failed. tokens: generated, by all \
         requests of a turn. s: seconds of a turn, and above the same turn without repair.\n",
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for source in SOURCES.iter().filter(|source| only.is_none_or(|only| source.calls == only)) {
        println!("{}", source.name);
        let scratch = tempfile::tempdir()?;
        let endpoints = bench.start(source, scratch.path())?;
        for endpoint in &endpoints {
            // The load is no part of any turn.
            let prompt = Prompt::seeded(0);
            runtime.block_on(turn(endpoint, &prompt, &prompt.body("none", 0.0, 0, 1)))?;
        }
        table::print_head();
        for temperature in TEMPERATURES {
            let mut cells: Vec<Cell> = endpoints.iter().map(|_| Cell::default()).collect();
            for seed in 0..u64::from(turns) {
                let prompt = Prompt::seeded(seed);
                let body = prompt.body(source.choice, temperature, seed, MAX_TOKENS);
                for (endpoint, cell) in endpoints.iter().zip(&mut cells) {
                    cell.push(runtime.block_on(turn(endpoint, &prompt, &body))?);
                }
            }
            for ((name, ..), cell) in source.endpoints.iter().zip(&cells) {
                table::print_row(temperature, name, cell, &cells[0]);
            }
        }
        println!();
    }
    Ok(())
}

struct Bench<'a> {
    xtask: &'a Path,
    engine: PathBuf,
    model: PathBuf,
    template: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(root: &Path, xtask: &'a Path) -> Result<Self> {
        let assets = swap::assets(xtask)?;
        let engine = install(&ENGINE, &assets, &())?.path;
        let template = root.join("gglib-testkit/fixtures/tools.jinja");
        ensure!(template.is_file(), "{} is missing", template.display());
        Ok(Self { xtask, engine, model: swap::gemma3(&assets)?, template })
    }

    fn start(&self, source: &Source, scratch: &Path) -> Result<Vec<Endpoint>> {
        let start = |(number, (_, repair, engine)): (usize, &(&str, bool, Engine))| {
            let directory = scratch.join(number.to_string());
            std::fs::create_dir(&directory)?;
            let mut args = Vec::new();
            if !matches!(engine, Engine::Untaught) {
                args.extend(["--chat-template-file", self.template.to_str().context("an odd path")?]);
            }
            let relayed = matches!(engine, Engine::Relayed | Engine::RelayedUntaught);
            if relayed {
                args.extend(["--relay-to", self.engine.to_str().context("an odd path")?]);
            }
            if matches!(engine, Engine::RelayedUntaught) {
                args.push("--relay-untaught");
            }
            let relay = self.xtask.with_file_name("relay-llama-server");
            let binary = if relayed { &relay } else { &self.engine };
            let toml = format!(
                "recovery.repair = {repair}\n[engine]\nbinary = \"{}\"\n[models.{MODEL}]\npath = \"{}\"\ncontext = 2048\n\
                 args = {args:?}\n",
                binary.display(),
                self.model.display(),
            );
            Endpoint::start(self.xtask, &directory, &toml)
        };
        source.endpoints.iter().enumerate().map(start).collect()
    }
}

/// One turn, and what the endpoint counted meanwhile.
async fn turn(endpoint: &Endpoint, prompt: &Prompt, body: &Value) -> Result<Turn> {
    let before = Counts::read(endpoint).await?;
    let started = Instant::now();
    let answer = swap::ask(endpoint.address, "POST", "/v1/chat/completions", body.to_string()).await;
    let seconds = started.elapsed().as_secs_f64();
    let after = Counts::read(endpoint).await?;
    let answer = answer.unwrap_or_else(|error| json!({ "error": error.to_string() }));
    let seen = answer["usage"]["completion_tokens"].as_u64().unwrap_or_default();
    let tokens = after.tokens - before.tokens;
    let outcome = if after.broken == before.broken {
        Outcome::Passed
    } else if after.mends > before.mends {
        Outcome::Mended
    } else if after.repairs > before.repairs {
        Outcome::Repaired
    } else if tokens > seen {
        Outcome::StillBroken
    } else {
        Outcome::Refused
    };
    Ok(Turn { verdict: prompt.judge(&answer), outcome, seconds, tokens })
}

/// What `/metrics` says.
struct Counts {
    tokens: u64,
    broken: u64,
    mends: u64,
    repairs: u64,
}

impl Counts {
    async fn read(endpoint: &Endpoint) -> Result<Self> {
        let text = swap::fetch(endpoint.address, "GET", "/metrics", String::new()).await?;
        let text = String::from_utf8(text.to_vec())?;
        let count = |name: &str| -> Result<u64> {
            let series = format!("{name}{{model=\"{MODEL}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            Ok(line.with_context(|| format!("no {name} in /metrics"))?.parse()?)
        };
        Ok(Self {
            tokens: count("gglib_completion_tokens_total")?,
            broken: count("gglib_broken_turns_total")?,
            mends: count("gglib_mends_total")?,
            repairs: count("gglib_repairs_total")?,
        })
    }
}
