//! Calls the target of the same name with the fuzzer's bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gglib_fuzz::targets::gguf(data));
