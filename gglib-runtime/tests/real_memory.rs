//! Estimated memory beside measured, with the real `llama-server` and real models; and damage to real headers.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![expect(clippy::print_stdout, reason = "the numbers are of interest beyond the verdict")]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::memory::{Memory, MemoryProbe, expected_after_stop};
use gglib_core::model::gguf::{Facts, PerLayer};
use gglib_core::model::{ModelName, ModelSpec};
use gglib_core::ports::Lease;
use gglib_runtime::memory::{SystemProbe, estimate, facts, wait_for_memory};
use gglib_testkit::engines::{Enter, only_engine};
use gglib_testkit::{Engines, real};
use http::Request;
use proptest::prelude::*;
use tokio::sync::Mutex;

#[expect(unreachable_pub, dead_code, reason = "the fuzzer reaches all of it from outside")]
#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// Held by whoever runs engines here: what one test loads is no longer available to the machine that another looks at.
static ENGINES: Mutex<()> = Mutex::const_new(());

/// How far an estimate may be off, either way.
const FACTOR: f64 = 1.25;

fn mib(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "no engine here takes petabytes")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}

/// Runs an engine, measures it when it is ready and after a request, and compares both with the estimate.
async fn compare(probe: &dyn MemoryProbe, model: &Path, context: u32, parallel: u32) {
    let engines = Engines::real()
        .model("model", model, parallel, real::one_thread())
        .with("model", |spec| spec.context = Some(context));
    let spec = spec(model, context, parallel);
    let estimate = estimate(&spec, 0).unwrap();
    let pool = engines.start();
    let lease = pool.lease(ModelName::new("model")).await.unwrap();
    let pid = only_engine(&*pool).await.pid.unwrap();
    let ready = probe.footprint(pid).unwrap();
    ask(&*lease).await;
    let used = probe.footprint(pid).unwrap();

    let estimated = estimate.memory();
    println!(
        "{} {context} x {parallel}: estimate {:.0} (weights {:.0}, cache {:.0}, compute {:.0}, overhead {:.0})",
        model.file_name().unwrap().display(),
        mib(estimated.ram),
        mib(estimate.weights.ram),
        mib(estimate.cache.ram),
        mib(estimate.compute.ram),
        mib(estimate.overhead.ram),
    );
    for (when, measured) in [("ready", ready), ("used", used)] {
        let corrected = estimate.corrected(measured).ram;
        println!(
            "  {when}: own {:.0} + mapped {:.0} = {:.0}; with weights once {:.0} MiB",
            mib(measured.anonymous),
            mib(measured.mapped),
            mib(measured.anonymous + measured.mapped),
            mib(corrected),
        );
        let factor = mib(estimated.ram) / mib(corrected);
        assert!((1.0 / FACTOR..FACTOR).contains(&factor), "{when}: off by {factor}");
        // The weights are mapped whole: what is mapped is the file, less the header and the last page.
        let mapped = mib(measured.mapped) / mib(estimate.weights.ram);
        assert!((0.95..1.05).contains(&mapped), "{when}: {mapped} of the weights are mapped");
        // More than the weights twice and everything else there cannot be.
        assert!(measured.anonymous < estimated.ram + estimate.weights.ram / 4, "{measured:?}");
    }
    pool.shut_down(Duration::from_secs(10)).await;
    assert_eq!(probe.footprint(pid), None);
}

fn spec(model: &Path, context: u32, parallel: u32) -> ModelSpec {
    ModelSpec { context: Some(context), parallel, ..ModelSpec::new(model) }
}

/// A prompt of more than one batch.
async fn ask(lease: &dyn Lease) {
    let prompt = "one two three four five ".repeat(150);
    let body =
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"max_tokens":2,"stream":true}}"#);
    let request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Bytes::from(body))
        .unwrap();
    let response = lease.upstream().send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    while let Some(chunk) = body.next().await {
        chunk.unwrap();
    }
}

#[tokio::test]
async fn estimates_are_near_what_is_measured() {
    let _alone = ENGINES.lock().await;
    let probe = SystemProbe::new().unwrap();
    for (context, parallel) in [(2048, 1), (4096, 2)] {
        compare(&probe, &real::smollm2(), context, parallel).await;
    }
    for (context, parallel) in [(2048, 1), (32_768, 1)] {
        compare(&probe, &real::gemma3(), context, parallel).await;
    }
}

#[tokio::test]
async fn the_memory_of_a_stopped_engine_comes_back() {
    let _alone = ENGINES.lock().await;
    let probe: Arc<dyn MemoryProbe> = Arc::new(SystemProbe::new().unwrap());
    let pool = Engines::real().model("model", &real::smollm2(), 1, real::one_thread()).start();
    drop(pool.lease(ModelName::new("model")).await.unwrap());
    let pid = only_engine(&*pool).await.pid.unwrap();
    let freed = Memory { ram: probe.footprint(pid).unwrap().anonymous, vram: 0 };
    let before = probe.machine().available;
    pool.shut_down(Duration::from_secs(10)).await;
    // Others use this machine too, so half of it must do.
    let half = Memory { ram: freed.ram / 2, vram: 0 };
    wait_for_memory(&probe, expected_after_stop(before, half), Duration::from_secs(120)).await.unwrap();
}

#[test]
fn the_facts_of_real_models_are_read() {
    let smollm2 = facts(&real::smollm2()).unwrap();
    assert_eq!(
        (smollm2.architecture.as_str(), smollm2.vocabulary, smollm2.has_chat_template),
        ("llama", 49_152, true)
    );
    let attention = smollm2.attention.as_ref().unwrap();
    assert_eq!(
        (attention.layers, attention.kv_heads.of(0), attention.key, attention.window),
        (30, 3, 64, None)
    );
    check_size(&smollm2, &real::smollm2());
    let gemma3 = facts(&real::gemma3()).unwrap();
    assert_eq!(
        (gemma3.architecture.as_str(), gemma3.vocabulary, gemma3.has_chat_template),
        ("gemma3", 262_144, false)
    );
    let attention = gemma3.attention.as_ref().unwrap();
    assert_eq!((attention.layers, attention.key, attention.window), (18, 256, Some(512)));
    let PerLayer::Each(windowed) = &attention.windowed else { panic!("{attention:?}") };
    assert_eq!(windowed.iter().sum::<u64>(), 15);
    check_size(&gemma3, &real::gemma3());
}

/// The tensors and the header make up the file; padding is next to nothing.
fn check_size(facts: &Facts, path: &Path) {
    let size = path.metadata().unwrap().len();
    let header = size - facts.tensors.total();
    assert!((1 << 20..8 << 20).contains(&header), "{header}");
}

/// The header of the model at `path`, and some more.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take(7 << 20).read_to_end(&mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_to_a_real_header_is_survived(
        damage in prop::collection::vec((0_usize..4096, any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for model in [real::smollm2(), real::gemma3()] {
            let mut bytes = beginning(&model);
            bytes.truncate(cut.index(bytes.len()).max(4096));
            for (at, byte) in &damage {
                bytes[*at] = *byte;
            }
            targets::gguf(&bytes);
        }
    }
}
