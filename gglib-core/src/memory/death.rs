//! Whether a load died for lack of memory.

/// How a process ended that was to become an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody knows.
    Unknown,
}

/// The signal of the kernel's out-of-memory killer.
const SIGKILL: i32 = 9;

/// What llama.cpp and the libraries below it write when they get no memory, in small letters.
const PHRASES: &[&str] = &[
    // ggml: `failed to allocate buffer of size …`, `failed to allocate CUDA0 buffer of size …`
    "failed to allocate",
    // llama.cpp: `error loading model: unable to allocate CUDA0 buffer`
    "unable to allocate",
    // CUDA and HIP: `cudaMalloc failed: out of memory`
    "out of memory",
    // Vulkan: `vk::Device::allocateMemory: ErrorOutOfDeviceMemory`
    "erroroutofdevicememory",
    "erroroutofhostmemory",
    // Metal: `Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)`
    "insufficient memory",
    "erroroutofmemory",
    // The C++ library, and the system's ENOMEM.
    "std::bad_alloc",
    "cannot allocate memory",
];

/// Whether an engine that ended while it loaded was short of memory, by the way of its end and the last lines
/// of its log.
///
/// Killed during a load means the kernel's out-of-memory killer, for want of anybody else who does that. All
/// other signs are in the text: an engine that gets no memory exits with status 1, as for a damaged file, and
/// has no other way to tell. A warning about `mlock` is none, since the engine goes on without it.
///
/// ```
/// use gglib_core::memory::{Death, died_of_memory};
///
/// assert!(died_of_memory(Death::Signal(9), &[]));
/// assert!(died_of_memory(Death::Code(1), &["ggml_gallocr_reserve_n: failed to allocate CPU buffer of size 8".to_owned()]));
/// assert!(!died_of_memory(Death::Code(1), &["error loading model: invalid magic".to_owned()]));
/// ```
pub fn died_of_memory(death: Death, log: &[String]) -> bool {
    death == Death::Signal(SIGKILL) || death != Death::Code(0) && log.iter().any(|line| is_about_memory(line))
}

fn is_about_memory(line: &str) -> bool {
    let line = line.to_lowercase();
    !line.contains("mlock") && PHRASES.iter().any(|phrase| line.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_memory_is_told_from_other_ends() {
        #[rustfmt::skip]
        let table = [
            (true, 1, "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 137438953472"),
            (true, 1, "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory"),
            (true, 1, "llama_model_load: error loading model: unable to allocate CUDA0 buffer"),
            (true, 1, "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"),
            (true, 134, "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"),
            (true, 134, "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
            (true, 134, "terminate called after throwing an instance of 'std::bad_alloc'"),
            (true, 1, "llama_model_load: error loading model: mmap failed: Cannot allocate memory"),
            (false, 1, "warning: failed to mlock 98364416-byte buffer (after previously locking 0 bytes): Cannot allocate memory"),
            (false, 1, "gguf_init_from_file_impl: failed to read tensor info"),
            (false, 1, "llama_model_load: error loading model: unknown model architecture: 'x'"),
            (false, 1, "common_params_fit_impl: projected to use 89 MiB of host memory vs. 24105 MiB of total host memory"),
            (false, 0, "out of memory"),
        ];
        for (died_of_it, code, line) in table {
            let log = ["load_tensors: loading".to_owned(), line.to_owned(), "exiting".to_owned()];
            assert_eq!(died_of_memory(Death::Code(code), &log), died_of_it, "{line}");
        }
    }

    #[test]
    fn the_real_engines_last_words_are_understood() {
        // llama.cpp b10434 with SmolLM2 and too little address space for its cache.
        let log = "\
0.17.485.671 E ggml_aligned_malloc: insufficient memory (attempted to allocate 180.00 MB)
0.17.485.684 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 188743680
0.17.485.685 E alloc_tensor_range: failed to allocate CPU buffer of size 188743680
0.17.485.800 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
0.17.485.805 E cmn  common_init_: failed to create context with model '/m.gguf'
0.17.485.819 E srv    load_model: failed to create_context with model '/m.gguf'
0.17.485.822 I srv    operator(): operator(): cleaning up before exit...
0.17.505.744 E srv  llama_server: exiting due to model loading error";
        let lines: Vec<String> = log.lines().map(ToOwned::to_owned).collect();
        assert!(died_of_memory(Death::Code(1), &lines));
        assert!(!died_of_memory(Death::Code(1), &lines[4..]));
    }

    #[test]
    fn a_signal_alone_tells_when_it_is_the_kernels() {
        assert!(died_of_memory(Death::Signal(9), &[]));
        assert!(!died_of_memory(Death::Signal(11), &[]));
        assert!(!died_of_memory(Death::Unknown, &[]));
        assert!(died_of_memory(Death::Signal(6), &["std::bad_alloc".to_owned()]));
    }
}
