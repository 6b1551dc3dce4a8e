//! How much memory an engine will take, before it is started.
//!
//! | part | bytes | from |
//! |---|---|---|
//! | weights | the tensors in the file, once; companions by their size | the tensor table |
//! | cache | per layer: cells × KV heads × (key elements + value elements), each in its type | facts, `parallel`, context |
//! | compute | micro-batch × 4 × (3 × (embedding + feed-forward) + heads × key) + masks + logits | fitted to the logs of llama.cpp b10434, which it meets within 2 % |
//! | overhead | 16 MiB + 100 bytes per token of the vocabulary | measured on the same |
//!
//! Cells are tokens of context per slot, rounded up to 256; a layer with a sliding window needs only
//! window + micro-batch of them. With a GPU the layers that go there take their weights and cache along.
//!
//! Weights count once although a CPU may copy them into a layout of its own: what was copied is not read from
//! the file again, and the kernel takes those pages back before anything else.
//!
//! Not counted is what an engine may grow by in use: context checkpoints of models with a sliding window, and
//! its prompt cache unless `--cache-ram` bounds it.

use super::gguf::{Attention, Facts};
use crate::memory::{Footprint, Memory};

pub use options::{EngineOptions, GpuLayers};

mod options;

/// Rounding of the cache's cells (llama.cpp's `GGML_PAD(n_ctx, 256)`).
const CELLS: u64 = 256;
const FLOAT: u64 = 4;
const MIB: u64 = 1 << 20;
/// Code, threads, buffers of the HTTP server.
const PROCESS: u64 = 16 * MIB;
/// A token's text, its score and its places in two hash maps.
const TOKEN: u64 = 100;
/// What a GPU's driver takes for each process. Assumed; no machine with a GPU was at hand.
const DRIVER: u64 = 512 * MIB;
/// What the engine leaves free on a GPU when it decides by itself (llama.cpp's `--fit-target`).
const FIT_MARGIN: u64 = 1024 * MIB;

/// An engine's expected memory, by what it is for; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The model's tensors and its companions.
    pub weights: Memory,
    /// Keys and values of the context.
    pub cache: Memory,
    /// Intermediate results.
    pub compute: Memory,
    /// Everything else.
    pub overhead: Memory,
    /// Of the weights in main memory, what a CPU may copy; counted nowhere else.
    repacked: u64,
}

impl Estimate {
    /// What an engine of the model with `facts` takes, started with `options`, beside `companions` bytes of
    /// further files ([`EngineOptions::companions`]), on a machine with `vram` bytes of GPU memory left for it.
    pub fn new(facts: &Facts, companions: u64, options: &EngineOptions, vram: u64) -> Self {
        let plan = Plan { facts, companions, options };
        if vram == 0 {
            return plan.with_layers_on_gpu(0);
        }
        let all = facts.attention.as_ref().map_or(0, |attention| attention.layers) + 1;
        match options.gpu_layers {
            GpuLayers::Exactly(layers) => plan.with_layers_on_gpu(layers.min(all)),
            GpuLayers::All => plan.with_layers_on_gpu(all),
            GpuLayers::Auto => {
                let fits = |estimate: &Self| estimate.memory().vram <= vram.saturating_sub(FIT_MARGIN);
                let most_first = (0..=all).rev().map(|layers| plan.with_layers_on_gpu(layers));
                most_first.into_iter().find(fits).unwrap_or_default()
            }
        }
    }

    /// All of it.
    pub fn memory(&self) -> Memory {
        let parts = [self.weights, self.cache, self.compute, self.overhead];
        parts.into_iter().fold(Memory::ZERO, Memory::saturating_add)
    }

    /// What the engine takes, now that it was measured when it had become ready.
    ///
    /// In main memory that is what is its own plus the weights that it has mapped, without those that it has
    /// copied: they count once. That it has made copies shows by itself, because with them its own memory is
    /// larger than the rest of the estimate by more than half of what could be copied. Never below weights and
    /// cache, which are certain. On a GPU it is what was measured, if that could be measured.
    pub fn corrected(&self, measured: Footprint) -> Memory {
        let rest = self.memory().ram.saturating_sub(self.weights.ram);
        let has_copied = measured.anonymous.saturating_sub(rest) > self.repacked / 2;
        let copied = if has_copied { self.repacked.min(measured.mapped) } else { 0 };
        let ram = measured.anonymous.saturating_add(measured.mapped - copied);
        let certain = self.weights.saturating_add(self.cache);
        Memory {
            ram: ram.max(certain.ram),
            vram: if measured.vram == 0 { self.memory().vram } else { measured.vram },
        }
    }
}

/// What an estimate is made from.
struct Plan<'a> {
    facts: &'a Facts,
    companions: u64,
    options: &'a EngineOptions,
}

impl Plan<'_> {
    /// The output matrix counts as the last layer and goes first, as in llama.cpp.
    fn with_layers_on_gpu(&self, on_gpu: u32) -> Estimate {
        let tensors = &self.facts.tensors;
        let mut estimate = Estimate {
            weights: Memory { ram: tensors.total().saturating_add(self.companions), vram: 0 },
            overhead: Memory {
                ram: PROCESS.saturating_add(self.facts.vocabulary.saturating_mul(TOKEN)),
                vram: if on_gpu == 0 { 0 } else { DRIVER },
            },
            ..Estimate::default()
        };
        if on_gpu > 0 {
            // Where embeddings serve as the output matrix too, the GPU has a copy.
            let output = if tensors.output == 0 { tensors.embedding } else { tensors.output };
            estimate.weights.vram = output;
            estimate.weights.ram = estimate.weights.ram.saturating_sub(tensors.output);
        }
        if let Some(attention) = &self.facts.attention {
            let shape = Shape::new(attention, self.options);
            for layer in 0..attention.layers {
                let is_on_gpu = attention.layers - layer < on_gpu;
                let weights = tensors.layers.get(layer as usize).copied().unwrap_or(0);
                let cache = shape.cache(layer);
                if is_on_gpu {
                    estimate.weights.vram = estimate.weights.vram.saturating_add(weights);
                    estimate.weights.ram = estimate.weights.ram.saturating_sub(weights);
                }
                let part = if is_on_gpu && self.options.is_cache_on_gpu {
                    &mut estimate.cache.vram
                } else {
                    &mut estimate.cache.ram
                };
                *part = part.saturating_add(cache);
            }
            let slots = u64::from(self.options.parallel);
            let logits = slots.saturating_mul(self.facts.vocabulary).saturating_mul(FLOAT);
            let compute = shape.compute();
            estimate.compute = Memory {
                ram: logits.saturating_add(if on_gpu > attention.layers { shape.inputs() } else { compute }),
                vram: if on_gpu == 0 { 0 } else { compute },
            };
        }
        estimate.repacked = tensors.repacked.min(estimate.weights.ram);
        estimate.overhead.ram = estimate.overhead.ram.saturating_add(self.options.prompt_cache);
        estimate
    }
}

/// A model's layers under the options of an engine.
struct Shape<'a> {
    attention: &'a Attention,
    options: &'a EngineOptions,
    /// Parts of the cache: one per slot, or one for all.
    streams: u64,
    /// Of one part, in a layer that sees everything.
    cells: u64,
    /// The same in a layer with a window.
    windowed_cells: u64,
}

impl<'a> Shape<'a> {
    fn new(attention: &'a Attention, options: &'a EngineOptions) -> Self {
        let slots = u64::from(options.parallel.max(1));
        let (streams, sharers) = if options.is_cache_unified { (1, slots) } else { (slots, 1) };
        let context = options.context.unwrap_or(attention.context);
        let cells = padded(context / streams);
        let windowed_cells = match attention.window {
            Some(window) if !options.has_full_window => {
                padded(window.saturating_mul(sharers).saturating_add(options.micro_batch)).min(cells)
            }
            _ => cells,
        };
        Self { attention, options, streams, cells, windowed_cells }
    }

    /// Bytes of one layer's keys and values.
    fn cache(&self, layer: u32) -> u64 {
        let Attention { kv_heads, key, value, windowed, .. } = self.attention;
        let cells = if windowed.of(layer) > 0 { self.windowed_cells } else { self.cells };
        let heads = cells.saturating_mul(self.streams).saturating_mul(kv_heads.of(layer));
        let bytes = |elements: u64, kind: super::gguf::GgmlType| {
            kind.bytes(heads.saturating_mul(elements)).unwrap_or(u64::MAX)
        };
        bytes(*key, self.options.key_type).saturating_add(bytes(*value, self.options.value_type))
    }

    fn compute(&self) -> u64 {
        let Attention { embedding, feed_forward, heads, key, .. } = self.attention;
        let wide = embedding.saturating_add(*feed_forward).saturating_mul(3);
        let mut width = wide.saturating_add(heads.saturating_mul(*key));
        if !self.options.is_flash_attention_possible {
            // Every head's scores over the whole context.
            width = width.saturating_add(heads.saturating_mul(self.cells));
        }
        self.floats(width).saturating_add(self.masks())
    }

    /// What stays in main memory when everything else is on a GPU.
    fn inputs(&self) -> u64 {
        self.floats(self.attention.embedding.saturating_mul(2)).saturating_add(self.masks())
    }

    /// Who may see whom: 16 bits for each cell and token of a micro-batch.
    fn masks(&self) -> u64 {
        let window = if self.attention.window.is_some() { self.windowed_cells } else { 0 };
        self.cells.saturating_add(window).saturating_mul(self.options.micro_batch).saturating_mul(2)
    }

    fn floats(&self, width: u64) -> u64 {
        width.saturating_mul(self.options.micro_batch).saturating_mul(FLOAT)
    }
}

fn padded(cells: u64) -> u64 {
    cells.div_ceil(CELLS).saturating_mul(CELLS)
}
