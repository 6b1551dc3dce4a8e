//! Runs the workspace's tests, and makes sure that those on the real engine were among them.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::real_engine;
use crate::workspace::cargo;

/// Runs every test; answers with how many real-engine tests passed.
pub(super) fn run(root: &Path) -> Result<String> {
    let expected = real_engine::files(root)?;
    let printed = stream(root)?;
    let tally = real_engine::count(&printed);
    real_engine::verify(&expected, &tally)?;
    Ok(format!("{} real-engine tests in {} files", real_engine::total(&tally), expected.len()))
}

/// Runs `cargo test`, shows what it prints while it prints it, and keeps a copy.
///
/// One pipe for both streams keeps the order: cargo names a test binary on stderr, the binary reports on
/// stdout.
fn stream(root: &Path) -> Result<String> {
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(cargo());
    command
        // All of them: one run is to name everything that fails.
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("CARGO_TERM_COLOR", "never")
        .current_dir(root)
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn().context("cannot start `cargo test --workspace`")?;
    drop(command); // closes our ends of the pipe, so that reading ends with the child

    let mut printed = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        let read = reader.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        io::stdout().write_all(&chunk[..read])?;
        io::stdout().flush()?;
        printed.extend_from_slice(&chunk[..read]);
    }
    ensure!(child.wait()?.success(), "`cargo test --workspace` failed");
    Ok(String::from_utf8_lossy(&printed).into_owned())
}
