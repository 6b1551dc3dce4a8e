//! Building this crate's programs once, whatever crate's tests ask for them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The scripted fake of `llama-server`: a program that takes its command line. See [`Script`](crate::Script).
pub fn fake_engine() -> PathBuf {
    bins().join(format!("fake-llama-server{}", env::consts::EXE_SUFFIX))
}

/// A program that runs the real `llama-server` and takes the model's word for calls, so that broken ones come out; its
/// engine's `args` need [`TO_FLAG`].
pub fn relay_engine() -> PathBuf {
    bins().join(format!("relay-llama-server{}", env::consts::EXE_SUFFIX))
}

/// After it, in the command line of [`relay_engine`], the path of the real engine.
pub const TO_FLAG: &str = "--relay-to";

/// With it, [`relay_engine`] says of the chat template that it knows no tools, whether it does or not.
pub const UNTAUGHT_FLAG: &str = "--relay-untaught";

/// The directory that holds this crate's programs, built with the profile and into the target directory of the
/// running test. Built at most once per process; processes that ask at the same time wait for cargo's own lock.
pub fn bins() -> &'static Path {
    static BINS: OnceLock<PathBuf> = OnceLock::new();
    BINS.get_or_init(|| {
        let directory = profile_dir();
        build(&directory);
        directory
    })
}

/// Cargo's target directory, as the running test was built into it.
pub fn target_dir() -> PathBuf {
    parent(&profile_dir()).to_owned()
}

/// `target/debug` of `target/debug/deps/some_test-0123456789abcdef`, and of `target/debug/examples/…`.
fn profile_dir() -> PathBuf {
    let test = env::current_exe().expect("a running test knows its executable");
    let directory = parent(&test);
    // A program of cargo's lies in the profile's directory, a test one below it.
    let below = directory.ends_with("deps") || directory.ends_with("examples");
    if below { parent(directory).to_owned() } else { directory.to_owned() }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("cargo puts tests below its target directory")
}

fn build(directory: &Path) {
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "gglib-testkit",
            "--bins",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(parent(directory))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "the programs of gglib-testkit do not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
