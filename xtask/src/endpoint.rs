//! A `gglib serve` of a task's own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace::cargo;

/// A process that ends with the task.
pub(crate) struct Owned(pub(crate) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running endpoint.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) process: Owned,
}

impl Endpoint {
    /// Serves the configuration `toml` on a port of its own, from the `gglib` that lies beside `xtask`, with the
    /// configuration and all data in `directory`.
    pub(crate) fn start(xtask: &Path, directory: &Path, toml: &str) -> Result<Self> {
        let config = directory.join("gglib.toml");
        fs::write(&config, format!("server.listen = \"127.0.0.1:0\"\n{toml}"))?;
        let gglib = xtask.with_file_name("gglib");
        let mut process = Command::new(&gglib)
            .args(["serve", "--config"])
            .arg(&config)
            .env("GGLIB_LOG", "off")
            .env("GGLIB_DATA_DIR", directory)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", gglib.display()))?;
        let stdout = process.stdout.take().context("standard output was piped")?;
        let process = Owned(process);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once("/v1"));
        let address = address.with_context(|| format!("gglib says: {line}"))?.0.parse()?;
        Ok(Self { address, process })
    }

    /// What clients are given as base URL.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// Builds `gglib` and the fake engine beside this `xtask`, with its profile and its features.
pub(crate) fn build(root: &Path) -> Result<()> {
    let mut command = Command::new(cargo());
    command.args([
        "build",
        "--quiet",
        "--package",
        "xtask",
        "--package",
        "gglib-cli",
        "--package",
        "gglib-testkit",
    ]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    ensure!(command.current_dir(root).status()?.success(), "gglib and the fake engine do not build");
    Ok(())
}
