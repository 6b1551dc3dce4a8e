//! The real engine keeps the contract that gglib has with engines. Fails, and never skips, without it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "common/contract.rs"]
mod contract;
#[path = "common/served.rs"]
mod served;

use std::{fs::File, io::Read};

use gglib_testkit::real;

use self::served::Served;

#[tokio::test]
async fn the_real_engine_keeps_the_contract() {
    contract::check(Served::start(&real::engine(), &real::smollm2(), &real::one_thread())).await;
}

#[tokio::test]
async fn the_real_engine_wants_its_key() {
    contract::check_key(Served::start_with(
        &real::engine(),
        &real::smollm2(),
        &real::one_thread(),
        Some("k"),
    ))
    .await;
}

/// Installed from four wheels, whose parts are joined.
#[test]
fn both_real_models_are_gguf_files() {
    for model in [real::smollm2(), real::gemma3()] {
        let mut magic = [0; 4];
        File::open(model).unwrap().read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"GGUF");
    }
}

#[tokio::test]
async fn the_real_engine_keeps_its_slots() {
    let directory = tempfile::tempdir().unwrap();
    let mut args = real::one_thread();
    args.extend(["--slot-save-path".to_owned(), directory.path().display().to_string()]);
    let start = || Served::start(&real::engine(), &real::smollm2(), &args);
    contract::check_slots(start(), start()).await;
}
