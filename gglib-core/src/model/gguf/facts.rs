//! What a header means for the memory that its model will take.

use super::metadata::{Metadata, Value};
use super::{GgufError, Split, Tensors, limit};

/// What a model's file says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Of the file format.
    pub version: u32,
    /// Such as `llama`; the prefix of the model's metadata. `clip` for a multimodal projector.
    pub architecture: String,
    /// The model's own name, where it has one.
    pub name: Option<String>,
    /// llama.cpp's number for the mixture of types that the weights are in (`enum llama_ftype`).
    pub file_type: Option<u64>,
    /// Whether the file carries a chat template.
    pub has_chat_template: bool,
    /// Tokens of the vocabulary; zero when unknown.
    pub vocabulary: u64,
    /// Which part of a model in several files this is.
    pub split: Option<Split>,
    /// How it attends, and so how large its KV cache is. `None` for files that are no language model, such as
    /// a multimodal projector or a further part of a split model.
    pub attention: Option<Attention>,
    /// The bytes of the weights.
    pub tensors: Tensors,
}

/// The shape of a model's layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Layers.
    pub layers: u32,
    /// Longest context it was trained for, in tokens.
    pub context: u64,
    /// Width of the residual stream.
    pub embedding: u64,
    /// Width of the feed-forward network: the widest layer's, or all experts' that a token uses.
    pub feed_forward: u64,
    /// Heads of the queries: the widest layer's.
    pub heads: u64,
    /// Heads of keys and values, by layer. Zero for layers without a KV cache.
    pub kv_heads: PerLayer,
    /// Elements of one head's key.
    pub key: u64,
    /// Elements of one head's value.
    pub value: u64,
    /// Tokens that a layer with a sliding window looks back; `None` when all layers see everything.
    pub window: Option<u64>,
    /// Which layers look through the window: not zero. Empty when the file does not say, and the
    /// architecture decides.
    pub windowed: PerLayer,
    /// Experts of a mixture; zero for a dense model.
    pub experts: u64,
}

/// One number per layer, or one for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerLayer {
    /// The same everywhere.
    All(u64),
    /// By layer.
    Each(Vec<u64>),
}

impl PerLayer {
    /// Of `layer`; zero beyond the end.
    pub fn of(&self, layer: u32) -> u64 {
        match self {
            Self::All(number) => *number,
            Self::Each(numbers) => numbers.get(layer as usize).copied().unwrap_or(0),
        }
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        match self {
            Self::All(number) => *number,
            Self::Each(numbers) => numbers.iter().copied().max().unwrap_or(0),
        }
    }
}

impl Facts {
    pub(super) fn new(version: u32, metadata: &Metadata, tensors: Tensors) -> Result<Self, GgufError> {
        let split = match (metadata.number("split.no"), metadata.number("split.count")) {
            (Some(number), Some(count)) => Split::new(number, count),
            _ => None,
        };
        let architecture = metadata.text("general.architecture").unwrap_or_default().to_owned();
        let is_further_part = split.is_some_and(|split| split.number > 0);
        let is_model = !is_further_part && matches!(metadata.text("general.type"), None | Some("model"));
        if architecture.is_empty() && is_model {
            return Err(GgufError::Missing { key: "general.architecture".to_owned() });
        }
        let own = Own { metadata, architecture: &architecture };
        let attention = if is_model { Some(own.attention()?) } else { None };
        Ok(Self {
            version,
            name: metadata.text("general.name").map(ToOwned::to_owned),
            file_type: metadata.number("general.file_type"),
            has_chat_template: metadata.text("tokenizer.chat_template").is_some(),
            vocabulary: match metadata.value("tokenizer.ggml.tokens") {
                Some(Value::Array { len, .. }) => *len,
                _ => own.number("vocab_size").unwrap_or(0),
            },
            split,
            attention,
            tensors,
            architecture,
        })
    }

    /// Adds the weights of a further file of the same model.
    pub fn add_part(&mut self, part: &Self) {
        self.tensors.add(&part.tensors);
    }
}

/// The entries of the model's architecture.
struct Own<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Own<'_> {
    fn attention(&self) -> Result<Attention, GgufError> {
        let layers = u32::try_from(self.required("block_count")?).unwrap_or(u32::MAX);
        if layers > limit::LAYERS {
            let (claimed, limit) = (u64::from(layers), u64::from(limit::LAYERS));
            return Err(GgufError::TooMuch { what: "layers", claimed, limit });
        }
        let embedding = self.required("embedding_length")?;
        let heads = self.per_layer("attention.head_count").unwrap_or(PerLayer::All(0));
        // Without a length of its own a head has its share of the embedding (llama.cpp's `load_hparams`).
        let head = embedding.checked_div(heads.max()).unwrap_or(0);
        let window = self.number("attention.sliding_window").filter(|&window| window > 0);
        Ok(Attention {
            layers,
            context: self.required("context_length")?,
            embedding,
            feed_forward: self.feed_forward(),
            heads: heads.max(),
            kv_heads: self.per_layer("attention.head_count_kv").unwrap_or(heads),
            key: self.widest("key_length").unwrap_or(head),
            value: self.widest("value_length").unwrap_or(head),
            window,
            windowed: self.windowed(layers),
            experts: self.number("expert_count").unwrap_or(0),
        })
    }

    /// Of a mixture, all experts that one token uses.
    fn feed_forward(&self) -> u64 {
        let dense = self.per_layer("feed_forward_length").map_or(0, |widths| widths.max());
        let expert = self.number("expert_feed_forward_length").unwrap_or(dense);
        dense.max(expert.saturating_mul(self.number("expert_used_count").unwrap_or(0)))
    }

    /// Which layers have a window: as the file says, or by the period that the file or llama.cpp's own code
    /// gives (`set_swa_pattern`): every n-th layer sees everything.
    fn windowed(&self, layers: u32) -> PerLayer {
        let period = match self.metadata.value(&self.key("attention.sliding_window_pattern")) {
            Some(Value::Array { numbers, .. }) if !numbers.is_empty() => {
                return PerLayer::Each(numbers.clone());
            }
            Some(Value::Number(period)) => Some(*period),
            _ => PERIODS.iter().find(|(name, _)| *name == self.architecture).map(|(_, period)| *period),
        };
        let Some(period) = period.filter(|&period| period > 0) else { return PerLayer::All(0) };
        PerLayer::Each((0..u64::from(layers)).map(|layer| u64::from(layer % period < period - 1)).collect())
    }

    /// The larger one, where layers with a window have heads of their own.
    fn widest(&self, which: &str) -> Option<u64> {
        let full = self.number(&format!("attention.{which}"));
        full.max(self.number(&format!("attention.{which}_swa")))
    }

    fn per_layer(&self, key: &str) -> Option<PerLayer> {
        match self.metadata.value(&self.key(key))? {
            Value::Number(number) => Some(PerLayer::All(*number)),
            Value::Array { numbers, .. } if !numbers.is_empty() => Some(PerLayer::Each(numbers.clone())),
            _ => None,
        }
    }

    fn required(&self, key: &str) -> Result<u64, GgufError> {
        self.number(key).ok_or_else(|| GgufError::Missing { key: self.key(key) })
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.metadata.number(&self.key(key))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}

/// Architectures whose period is in llama.cpp's code and not in the file. Any other with a window counts as
/// seeing everything, which can only make an estimate too large.
const PERIODS: &[(&str, u64)] = &[
    ("cohere2", 4),
    ("exaone4", 4),
    ("gemma2", 2),
    ("gemma3", 6),
    ("gemma3n", 5),
    ("gpt-oss", 2),
    ("olmo2", 4),
];
