//! Writes headers, valid and otherwise.

/// A header in the making. Values are written as llama.cpp's converter writes them.
#[derive(Clone)]
pub(crate) struct Header {
    version: u32,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
}

impl Header {
    /// Without any entry.
    pub(crate) fn empty(version: u32) -> Self {
        Self { version, entries: Vec::new(), tensors: Vec::new() }
    }

    /// A small model with a window in every other layer, a vocabulary, a template and four tensors.
    pub(crate) fn small(version: u32) -> Self {
        Self::empty(version)
            .text("general.architecture", "gemma2")
            .text("general.type", "model")
            .u32("general.file_type", 7)
            .u32("gemma2.block_count", 4)
            .u32("gemma2.context_length", 8192)
            .u32("gemma2.embedding_length", 64)
            .u32("gemma2.feed_forward_length", 256)
            .u32("gemma2.attention.head_count", 8)
            .u32("gemma2.attention.head_count_kv", 2)
            .u32("gemma2.attention.sliding_window", 512)
            .array("tokenizer.ggml.tokens", 8, &["a", "b", "c"].map(text))
            .array("tokenizer.ggml.scores", 6, &[0.5_f32, 1.0, 2.0].map(f32::to_le_bytes))
            .text("tokenizer.chat_template", &"{{ x }}".repeat(100))
            .tensor("token_embd.weight", &[64, 3], 1, 0)
            .tensor("blk.0.attn_q.weight", &[64, 64], 8, 384)
            .tensor("blk.3.attn_q.weight", &[64, 64], 8, 384 + 4352)
            .tensor("output_norm.weight", &[64], 0, 384 + 2 * 4352)
    }

    pub(crate) fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push([&text(key), &kind.to_le_bytes()[..], value].concat());
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }

    pub(crate) fn array(self, key: &str, kind: u32, elements: &[impl AsRef<[u8]>]) -> Self {
        let head = [&kind.to_le_bytes()[..], &(elements.len() as u64).to_le_bytes()].concat();
        let elements: Vec<u8> = elements.iter().flat_map(AsRef::as_ref).copied().collect();
        self.entry(key, 9, &[head, elements].concat())
    }

    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let dimensions = u32::try_from(shape.len()).unwrap().to_le_bytes();
        let shape: Vec<u8> = shape.iter().flat_map(|side| side.to_le_bytes()).collect();
        let place = [&kind.to_le_bytes()[..], &offset.to_le_bytes()].concat();
        self.tensors.push([text(name), dimensions.to_vec(), shape, place].concat());
        self
    }

    /// Without the entry `key`.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.entries.retain(|entry| !entry.starts_with(&text(key)));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let counts = [self.tensors.len(), self.entries.len()].map(|n| (n as u64).to_le_bytes()).concat();
        [b"GGUF".to_vec(), self.version.to_le_bytes().to_vec(), counts]
            .into_iter()
            .chain(self.entries.iter().cloned())
            .chain(self.tensors.iter().cloned())
            .collect::<Vec<_>>()
            .concat()
    }
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}
