//! What it saves that a conversation survives a swap: time to the first token of its next turn.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gglib_core::api::chunk::Probe;
use gglib_core::slots::PromptCounts;
use gglib_core::sse::{Decoder, SseEvent};
use gglib_runtime::install::{ENGINE, SMOLLM2, install};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::load;
use crate::endpoint::Endpoint;

const ROUNDS: usize = 3;
/// Of a prompt: each is one token and a half of this model, with what stands around them.
const WORDS: usize = 1000;

/// Measures with and without slots in turns, with the real engine and a real model under two names. `xtask` is this
/// program; `gglib` lies beside it, and engine and model in the target directory.
///
/// # Errors
/// When something cannot be installed or does not start, or a request fails.
pub fn run(xtask: &Path) -> Result<()> {
    let target = xtask.ancestors().nth(2).context("xtask lies in a profile of the target directory")?;
    let assets = target.join("test-assets");
    let engine = install(&ENGINE, &assets, &())?.path;
    let model = install(&SMOLLM2, &assets, &())?.path;
    println!(
        "Changed from the defaults: engine.binary, and slots.enabled where it says so. One engine at a time.\n\
         A conversation on A, one turn on B, the next turn on A: its time to first token, the swap included.\n\
         Each figure is the median of {ROUNDS} rounds, with and without in turns.\n"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut with = Vec::new();
    let mut without = Vec::new();
    for round in 0..ROUNDS {
        for (enabled, rounds) in [(true, &mut with), (false, &mut without)] {
            let scratch = tempfile::tempdir()?;
            let toml = format!(
                "slots.enabled = {enabled}\n[engine]\nbinary = \"{}\"\n[models.a]\npath = \"{model}\"\ncontext = 4096\n\
                 [models.b]\npath = \"{model}\"\ncontext = 4096\n",
                engine.display(),
                model = model.display(),
            );
            let endpoint = Endpoint::start(xtask, scratch.path(), &toml)?;
            rounds.push(runtime.block_on(converse(endpoint.address, round))?);
            let slots = scratch.path().join("slots");
            ensure!(fs::exists(slots)? == enabled, "slots.enabled = {enabled} was not obeyed");
        }
    }
    println!("            next turn after a swap    cached of the prompt    same turn without a swap");
    print_row("with", &with);
    print_row("without", &without);
    let ratio = median(&without, |turns| turns.swapped) / median(&with, |turns| turns.swapped);
    println!("\nThe swap's next turn begins {ratio:.1} times sooner with slots.");
    Ok(())
}

/// What one conversation came to.
struct Turns {
    /// Time to first token after a swap to B and back, in seconds.
    swapped: f64,
    counts: PromptCounts,
    /// The same of one more turn right after it, in seconds.
    warm: f64,
}

async fn converse(address: SocketAddr, round: usize) -> Result<Turns> {
    let words = ["river", "stone", "light", "green", "walks", "seven", "house", "under", "music", "paper"];
    let text: Vec<_> = (0..WORDS).map(|n| words[(n * n + n / 7 + round) % words.len()]).collect();
    let mut messages = vec![user(&format!("Remember this: {}.", text.join(" ")))];
    turn(address, "a", &mut messages).await?;
    turn(address, "b", &mut vec![user("Hi")]).await?;
    messages.push(user("And now?"));
    let (swapped, counts) = turn(address, "a", &mut messages).await?;
    messages.push(user("And then?"));
    let (warm, _) = turn(address, "a", &mut messages).await?;
    Ok(Turns { swapped: swapped.as_secs_f64(), counts, warm: warm.as_secs_f64() })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// One turn: the time to its first token, and what was cached. Adds the answer to `messages`.
async fn turn(
    address: SocketAddr,
    model: &str,
    messages: &mut Vec<Value>,
) -> Result<(Duration, PromptCounts)> {
    let body =
        json!({ "model": model, "messages": messages, "stream": true, "max_tokens": 16, "temperature": 0 });
    let request = Request::post("/v1/chat/completions")
        .header("host", "bench")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let mut sender = load::connect(address).await?;
    let start = Instant::now();
    let mut response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "the answer was {}", response.status());
    let (mut events, mut first, mut counts, mut text) = (Decoder::default(), None, None, String::new());
    while let Some(frame) = response.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        events.push(bytes);
        while let Some(event) = events.next_event() {
            let SseEvent::Message { data, .. } = event? else { continue };
            let Ok(probe) = Probe::parse(&data) else { continue };
            ensure!(!probe.error, "{}", String::from_utf8_lossy(&data));
            if probe.content().is_some() {
                first.get_or_insert_with(|| start.elapsed());
                let chunk: Value = serde_json::from_slice(&data)?;
                text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            }
            counts = probe.counts.or(counts);
        }
    }
    messages.push(json!({ "role": "assistant", "content": text }));
    Ok((first.context("there was no content")?, counts.context("the engine did not count")?))
}

fn print_row(name: &str, rounds: &[Turns]) {
    let PromptCounts { prompt_tokens, cached_tokens } = rounds[rounds.len() / 2].counts;
    println!(
        "{name:<10} {:>20.2} s {:>16} of {:<5} {:>21.2} s",
        median(rounds, |turns| turns.swapped),
        cached_tokens,
        prompt_tokens,
        median(rounds, |turns| turns.warm),
    );
}

fn median(rounds: &[Turns], figure: impl Fn(&Turns) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
