//! Estimates against what llama.cpp b10434 wrote into its log, and the rules around them.

use gglib_core::memory::{Footprint, Memory};
use gglib_core::model::gguf::{Attention, Facts, GgmlType, PerLayer, Tensors};
use gglib_core::model::{EngineOptions, Estimate, ModelSpec};

const MIB: u64 = 1 << 20;

fn options(context: Option<u32>, parallel: u32, args: &[&str]) -> EngineOptions {
    EngineOptions::of(&ModelSpec {
        context,
        parallel,
        args: args.iter().map(ToString::to_string).collect(),
        ..ModelSpec::new("m.gguf")
    })
}

/// SmolLM2-135M-Instruct.
fn smollm2() -> Facts {
    facts(
        Attention {
            layers: 30,
            context: 8192,
            embedding: 576,
            feed_forward: 1536,
            heads: 9,
            kv_heads: PerLayer::All(3),
            key: 64,
            value: 64,
            window: None,
            windowed: PerLayer::All(0),
            experts: 0,
        },
        49_152,
    )
}

/// Gemma 3 270M.
fn gemma3() -> Facts {
    facts(
        Attention {
            layers: 18,
            context: 32_768,
            embedding: 640,
            feed_forward: 2048,
            heads: 4,
            kv_heads: PerLayer::All(1),
            key: 256,
            value: 256,
            window: Some(512),
            windowed: PerLayer::Each((0..18).map(|layer| u64::from(layer % 6 < 5)).collect()),
            experts: 0,
        },
        262_144,
    )
}

/// Ten MiB in each layer, 40 MiB of embeddings, 20 MiB of output.
fn facts(attention: Attention, vocabulary: u64) -> Facts {
    let tensors = Tensors {
        layers: vec![10 * MIB; attention.layers as usize],
        embedding: 40 * MIB,
        output: 20 * MIB,
        ..Tensors::default()
    };
    Facts {
        version: 3,
        architecture: String::new(),
        name: None,
        file_type: None,
        has_chat_template: false,
        vocabulary,
        split: None,
        attention: Some(attention),
        tensors,
    }
}

fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1024).unwrap()) / 1024.0
}

#[test]
fn cache_and_compute_are_what_the_engine_logs() {
    // `KV buffer size`, and `compute buffer size` with `output buffer size`, in MiB.
    for (model, context, parallel, cache, compute) in [
        ("smollm2", 2048, 1, 45.0, 15.51 + 0.19),
        ("smollm2", 8192, 1, 180.0, 21.51 + 0.19),
        ("gemma3", 2048, 1, 21.0, 20.77 + 1.0),
        ("gemma3", 32_768, 1, 111.0, 50.77 + 1.0),
        ("gemma3", 8192, 4, 156.0, 26.77 + 4.0),
    ] {
        let facts = if model == "smollm2" { smollm2() } else { gemma3() };
        let estimate = Estimate::new(&facts, 0, &options(Some(context), parallel, &[]), 0);
        assert!((mib(estimate.cache.ram) - cache).abs() < 0.01, "{model} {context} {estimate:?}");
        assert!((mib(estimate.compute.ram) / compute - 1.0).abs() < 0.02, "{model} {context} {estimate:?}");
    }
}

#[test]
fn arguments_of_the_model_change_the_estimate() {
    let cache = |args: &[&str]| Estimate::new(&smollm2(), 0, &options(Some(4096), 2, args), 0).cache.ram;
    let plain = cache(&[]);
    assert_eq!(plain, 180 * MIB);
    assert_eq!(cache(&["-ctk", "q8_0", "--cache-type-v", "q8_0"]), plain / 64 * 34);
    assert_eq!(cache(&["--threads", "2", "-c", "4096"]), plain / 2);
    assert_eq!(cache(&["--cache-type-k", "nonsense", "--temp", "-1"]), plain);
    // Both slots share 8192 cells, or each has 4096.
    assert_eq!(cache(&["-kvu"]), plain);
    // As the engine reads it.
    assert_eq!(cache(&["--ctx_size", "4096"]), plain / 2);
    let gemma = |args: &[&str]| Estimate::new(&gemma3(), 0, &options(None, 1, args), 0);
    assert_eq!(gemma(&["-c", "0"]).cache.ram, 111 * MIB);
    assert_eq!(gemma(&["--swa-full"]).cache.ram, 18 * 32 * MIB);
    assert!(gemma(&["-fa", "off"]).compute.ram > gemma(&[]).compute.ram + 4 * 32_768 * 512 * 4 - 1);
    assert!(gemma(&["-ub", "128"]).compute.ram < gemma(&[]).compute.ram / 3);
    assert_eq!(gemma(&["-b", "128"]), gemma(&["-ub", "128"]));
    assert_eq!(gemma(&["-cram", "100"]).overhead.ram, gemma(&["-cram", "-1"]).overhead.ram + 100 * MIB);
    let files = options(None, 1, &["--mmproj", "p.gguf", "-md", "d.gguf"]).companions;
    assert_eq!(files, ["p.gguf", "d.gguf"].map(std::path::PathBuf::from));
    let beside = Estimate::new(&gemma3(), 7 * MIB, &options(None, 1, &[]), 0);
    assert_eq!(beside.weights.ram, gemma(&[]).weights.ram + 7 * MIB);
}

#[test]
fn layers_on_a_gpu_take_weights_and_cache_along() {
    let of = |args: &[&str], vram| Estimate::new(&smollm2(), 0, &options(Some(2048), 1, args), vram);
    let vram = 24 << 30;
    let all = of(&[], vram);
    assert_eq!((all.weights.ram, all.weights.vram), (40 * MIB, 320 * MIB));
    assert_eq!((all.cache.ram, all.cache.vram), (0, 45 * MIB));
    assert_eq!(all, of(&["-ngl", "999"], vram));
    assert_eq!(all, of(&["-ngl", "all"], vram));
    // The output matrix counts as one and goes first.
    let eleven = of(&["-ngl", "11"], vram);
    assert_eq!((eleven.weights.vram, eleven.cache.vram), (120 * MIB, 15 * MIB));
    assert_eq!(of(&["-ngl", "11", "-nkvo"], vram).cache, Memory { ram: 45 * MIB, vram: 0 });
    assert_eq!(of(&["-ngl", "0"], vram).memory().vram, 0);
    assert_eq!(of(&[], 0), of(&["-ngl", "0"], vram));
    assert_eq!(of(&["--device", "none", "-ngl", "99"], vram), of(&["-ngl", "0"], vram));
    // Tensors that are placed by hand leave as much on the GPU as fits, however many layers are said to go there.
    let small = 800 << 20;
    assert!(of(&["-ngl", "99"], small).memory().vram > small);
    for by_hand in [&["--cpu-moe"][..], &["--n-cpu-moe", "4"], &["-ot", "ffn=CPU"]] {
        let args = [&["-ngl", "99"], by_hand].concat();
        assert_eq!(of(&args, small), of(&[], small), "{by_hand:?}");
    }
    assert_eq!(of(&["--cpu-moe", "-ngl", "0"], vram), of(&["-ngl", "0"], vram));
    // By itself the engine takes what fits and leaves 1 GiB.
    let some = of(&[], 1700 * MIB);
    assert!(some.memory().vram <= 676 * MIB && some.memory().vram > 660 * MIB, "{some:?}");
    assert_eq!(of(&[], 500 * MIB).memory().vram, 0);
}

#[test]
fn a_measurement_corrects_the_estimate_and_weights_count_once() {
    let mut facts = smollm2();
    facts.tensors.repacked = 300 * MIB;
    let estimate = Estimate::new(&facts, 0, &options(Some(2048), 1, &[]), 0);
    let weights = estimate.weights.ram;
    let measured =
        |anonymous, vram| estimate.corrected(Footprint { anonymous, mapped: weights, vram, swapped: 0 });
    assert_eq!(measured(70 * MIB, 0).ram, weights + 70 * MIB);
    // Another 300 MiB of its own can only be copies.
    assert_eq!(measured(370 * MIB, 0).ram, weights + 70 * MIB);
    // A measurement in the middle of something cannot take away what is certain.
    assert_eq!(measured(0, 0).ram, weights + 45 * MIB);
    assert_eq!(measured(70 * MIB, 5).vram, 5);
    let on_gpu = Estimate::new(&facts, 0, &options(Some(2048), 1, &[]), 24 << 30);
    assert_eq!(on_gpu.corrected(Footprint::default()).vram, on_gpu.memory().vram);
}

#[test]
fn sizes_of_types_are_those_of_their_blocks() {
    let bits = |name| (GgmlType::named(name).unwrap().bytes(1 << 20).unwrap() * 800) >> 20;
    // Bits per element, in hundredths, as llama.cpp prints them.
    for (name, expected) in [
        ("f16", 1600),
        ("q8_0", 850),
        ("q4_0", 450),
        ("q4_1", 500),
        ("q4_k", 450),
        ("q6_k", 656),
        ("iq4_xs", 425),
    ] {
        assert_eq!(bits(name), expected, "{name}");
    }
    assert_eq!(GgmlType(1000).bytes(1), None);
    assert_eq!(GgmlType::named("q4_0").unwrap().bytes(33), Some(36));
}
