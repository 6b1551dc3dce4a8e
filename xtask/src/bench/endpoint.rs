//! A `gglib serve` of the bench's own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A process that ends with the bench.
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running endpoint.
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    #[expect(dead_code, reason = "held for its Drop")]
    process: Owned,
}

impl Endpoint {
    /// Serves the configuration `toml` on a port of its own, from the `gglib` that lies beside `xtask`, with the
    /// configuration and all data in `directory`.
    pub(super) fn start(xtask: &Path, directory: &Path, toml: &str) -> Result<Self> {
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
}
