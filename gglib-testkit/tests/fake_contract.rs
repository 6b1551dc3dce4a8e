//! The fake engine keeps the contract that gglib has with engines.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "common/contract.rs"]
mod contract;
#[path = "common/served.rs"]
mod served;

use std::time::Duration;

use gglib_testkit::{Launch, Load, Reply, Script, fake_engine};

use self::served::Served;

#[tokio::test]
async fn the_fake_engine_keeps_the_contract() {
    let slowly = Reply { pace: Duration::from_millis(100), ..Reply::numbered(1900) };
    let quickly = Reply::default();
    // One of the long answers of the contract is left by its client, the other is cut by SIGTERM.
    let mut replies = vec![quickly.clone(); 5];
    replies.extend([slowly.clone(), quickly, slowly]);
    let launch = Launch { load: Load::Takes(Duration::from_millis(300)), replies, ..Launch::default() };
    let scripted = Script::always(launch).place();
    contract::check(Served::start(&fake_engine(), "model.gguf".as_ref(), &scripted.args())).await;
}

#[tokio::test]
async fn the_fake_engine_wants_its_key() {
    contract::check_key(Served::start_with(&fake_engine(), "model.gguf".as_ref(), &[], Some("k"))).await;
}

#[tokio::test]
async fn the_fake_engine_keeps_its_slots() {
    let directory = tempfile::tempdir().unwrap();
    let saves = ["--slot-save-path".to_owned(), directory.path().display().to_string()];
    let start = || Served::start(&fake_engine(), "model.gguf".as_ref(), &saves);
    contract::check_slots(start(), start()).await;
}
