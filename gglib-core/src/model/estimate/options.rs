//! What of an engine's command line decides about its memory.

use std::path::PathBuf;

use super::MIB;
use crate::model::gguf::GgmlType;
use crate::model::{ModelSpec, option_name};

/// What gglib starts its engines with (`--batch-size`), and llama.cpp's own `--ubatch-size`.
const BATCH: u64 = 512;

/// The options of `llama-server` that its memory depends on.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the engine's own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Of all slots together, in tokens; `None` takes the model's own.
    pub context: Option<u64>,
    /// Slots.
    pub parallel: u32,
    /// Tokens that are computed at once.
    pub micro_batch: u64,
    /// Of cached keys.
    pub key_type: GgmlType,
    /// Of cached values.
    pub value_type: GgmlType,
    /// Whether all slots share one part of the cache.
    pub is_cache_unified: bool,
    /// Whether layers with a window cache the whole context.
    pub has_full_window: bool,
    /// Whether flash attention was not switched off.
    pub is_flash_attention_possible: bool,
    /// Whether the cache goes where its layer is.
    pub is_cache_on_gpu: bool,
    /// Layers on GPUs, where there is one; what fits if single tensors are placed by hand.
    pub gpu_layers: GpuLayers,
    /// Bound of the prompt cache, in bytes; zero unless `--cache-ram` states one.
    pub prompt_cache: u64,
    /// Further files that are loaded: projectors, draft models, adapters.
    pub companions: Vec<PathBuf>,
}

/// How many layers go to a GPU; the output matrix counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuLayers {
    /// As many as fit; llama.cpp's own rule.
    Auto,
    /// All of them.
    All,
    /// The last so many.
    Exactly(u32),
}

impl EngineOptions {
    /// The options of an engine for `spec`: gglib's own arguments, then the model's, which win. What they get
    /// wrong is left for the engine to say.
    pub fn of(spec: &ModelSpec) -> Self {
        let mut options = Self {
            context: spec.context.map(|context| u64::from(context) * u64::from(spec.parallel)),
            parallel: spec.parallel,
            micro_batch: BATCH,
            key_type: GgmlType::F16,
            value_type: GgmlType::F16,
            is_cache_unified: false,
            has_full_window: false,
            is_flash_attention_possible: true,
            is_cache_on_gpu: true,
            gpu_layers: GpuLayers::Auto,
            prompt_cache: 0,
            companions: Vec::new(),
        };
        let (mut batch, mut is_without_gpu, mut is_placed_by_hand) = (BATCH, false, false);
        let mut args = spec.args.iter().map(String::as_str).peekable();
        while let Some(arg) = args.next() {
            let arg = option_name(arg);
            is_placed_by_hand |= places_tensors(&arg);
            is_without_gpu |= matches!(&*arg, "-dev" | "--device") && args.peek() == Some(&"none");
            if !options.flag(&arg)
                && let Some(value) = args.peek()
                && (options.valued(&arg, value) || is_batch(&arg, value, &mut batch))
            {
                args.next();
            }
        }
        options.micro_batch = options.micro_batch.min(batch);
        options.gpu_layers = match options.gpu_layers {
            _ if is_without_gpu => GpuLayers::Exactly(0),
            // Who does so sees to it that the rest fits.
            GpuLayers::All | GpuLayers::Exactly(1..) if is_placed_by_hand => GpuLayers::Auto,
            layers => layers,
        };
        options
    }

    /// Whether `arg` is an option without a value that matters here.
    fn flag(&mut self, arg: &str) -> bool {
        match arg {
            "--swa-full" => self.has_full_window = true,
            "-kvu" | "--kv-unified" => self.is_cache_unified = true,
            "-no-kvu" | "--no-kv-unified" => self.is_cache_unified = false,
            "-nkvo" | "--no-kv-offload" => self.is_cache_on_gpu = false,
            "-kvo" | "--kv-offload" => self.is_cache_on_gpu = true,
            _ => return false,
        }
        true
    }

    /// Whether `arg` is an option that matters here, and `value` makes sense for it.
    fn valued(&mut self, arg: &str, value: &str) -> bool {
        match arg {
            "-c" | "--ctx-size" => set(&mut self.context, number(value).map(|n| (n > 0).then_some(n))),
            "-ub" | "--ubatch-size" => set(&mut self.micro_batch, number(value)),
            "-ctk" | "--cache-type-k" => set(&mut self.key_type, GgmlType::named(value)),
            "-ctv" | "--cache-type-v" => set(&mut self.value_type, GgmlType::named(value)),
            "-fa" | "--flash-attn" => set(&mut self.is_flash_attention_possible, Some(value != "off")),
            "-ngl" | "--gpu-layers" | "--n-gpu-layers" => set(&mut self.gpu_layers, gpu_layers(value)),
            "-cram" | "--cache-ram" => {
                set(&mut self.prompt_cache, number(value).map(|mib| mib.saturating_mul(MIB)))
            }
            "-mm" | "--mmproj" | "-md" | "--model-draft" | "--spec-draft-model" | "--lora" => {
                self.companions.push(value.into());
                true
            }
            _ => false,
        }
    }
}

/// Whether `arg` keeps the weights of experts, or any others, off the GPU that their layer goes to.
fn places_tensors(arg: &str) -> bool {
    matches!(arg, "-cmoe" | "--cpu-moe" | "-ncmoe" | "--n-cpu-moe" | "-ot" | "--override-tensor")
}

fn is_batch(arg: &str, value: &str, batch: &mut u64) -> bool {
    matches!(arg, "-b" | "--batch-size") && set(batch, number(value))
}

/// Whether there was anything to set.
fn set<T>(field: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *field = value;
            true
        }
        None => false,
    }
}

fn number(value: &str) -> Option<u64> {
    value.parse().ok()
}

fn gpu_layers(value: &str) -> Option<GpuLayers> {
    match value {
        "auto" => Some(GpuLayers::Auto),
        "all" => Some(GpuLayers::All),
        // llama.cpp takes a negative number for all.
        negative if negative.starts_with('-') => Some(GpuLayers::All),
        number => number.parse().ok().map(GpuLayers::Exactly),
    }
}
