//! The table of tensors: how many bytes the weights take, and where.

use std::ops::Range;

use super::cursor::{Cursor, Stop};
use super::{GgmlType, GgufError, limit};

/// Sizes of a file's tensors, in bytes, summed up by where an engine puts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Tensors in this file.
    pub count: u64,
    /// Of the tensors of each layer (`blk.N.…`), by layer.
    pub layers: Vec<u64>,
    /// Of the token embeddings, which an engine always keeps in main memory.
    pub embedding: u64,
    /// Of the output matrix; zero where the model uses its embeddings for it.
    pub output: u64,
    /// Of everything else.
    pub other: u64,
    /// Of all these, what a CPU may copy into a layout of its own (see [`GgmlType::is_repacked`]).
    pub repacked: u64,
    /// Tensors whose type is newer than [our table](GgmlType): what the file has left for them is in `other`.
    pub unknown: u64,
}

impl Tensors {
    /// Reads the table, and tells where in the file the data begins and where the last tensor of a known type ends.
    pub(super) fn read(
        cursor: &mut Cursor<'_>,
        count: u64,
        alignment: u64,
    ) -> Result<(Self, Range<u64>), Stop> {
        let mut tensors = Self { count, ..Self::default() };
        let mut end_of_data: u64 = 0;
        for _ in 0..count {
            let name = cursor.name()?;
            let (dimensions, elements) = shape(cursor)?;
            let kind = GgmlType(cursor.u32()?);
            let offset = cursor.u64()?;
            if offset % alignment != 0 {
                return Err(cursor.broken("a tensor that is not aligned"));
            }
            let Some(bytes) = kind.bytes(elements) else {
                tensors.unknown += 1;
                end_of_data = end_of_data.max(offset);
                continue;
            };
            end_of_data = end_of_data.max(offset.saturating_add(bytes));
            if dimensions > 1 && kind.is_repacked() {
                tensors.repacked = tensors.repacked.saturating_add(bytes);
            }
            let sum = tensors.sum_of(name).map_err(|what| cursor.broken(what))?;
            *sum = sum.saturating_add(bytes);
        }
        let start = cursor.offset().next_multiple_of(alignment);
        let end = if count == 0 { cursor.offset() } else { start.saturating_add(end_of_data) };
        Ok((tensors, start..end))
    }

    /// Of all tensors of known types.
    pub fn total(&self) -> u64 {
        let sums = self.layers.iter().copied().chain([self.embedding, self.output, self.other]);
        sums.fold(0, u64::saturating_add)
    }

    /// Checks the table against the file's size, and gives tensors of unknown types what is left of it.
    pub(super) fn fit(&mut self, data: &Range<u64>, file_size: u64) -> Result<(), GgufError> {
        if data.end > file_size {
            return Err(GgufError::CutOff { needed: data.end, len: file_size });
        }
        if self.unknown > 0 {
            let left = file_size.saturating_sub(data.start).saturating_sub(self.total());
            self.other = self.other.saturating_add(left);
        }
        Ok(())
    }

    /// Together with those of a further file of the same model.
    pub(super) fn add(&mut self, other: &Self) {
        if self.layers.len() < other.layers.len() {
            self.layers.resize(other.layers.len(), 0);
        }
        for (layer, more) in self.layers.iter_mut().zip(&other.layers) {
            *layer = layer.saturating_add(*more);
        }
        self.count += other.count;
        self.embedding = self.embedding.saturating_add(other.embedding);
        self.output = self.output.saturating_add(other.output);
        self.other = self.other.saturating_add(other.other);
        self.repacked = self.repacked.saturating_add(other.repacked);
        self.unknown += other.unknown;
    }

    fn sum_of(&mut self, name: &str) -> Result<&mut u64, &'static str> {
        if let Some(rest) = name.strip_prefix("blk.") {
            let layer: Option<u32> = rest.split('.').next().and_then(|number| number.parse().ok());
            let layer =
                layer.filter(|&layer| layer < limit::LAYERS).ok_or("a tensor of no possible layer")?;
            let layer = layer as usize;
            if self.layers.len() <= layer {
                self.layers.resize(layer + 1, 0);
            }
            return Ok(&mut self.layers[layer]);
        }
        Ok(match name {
            "token_embd.weight" => &mut self.embedding,
            "output.weight" => &mut self.output,
            _ => &mut self.other,
        })
    }
}

/// Number of dimensions and of elements.
fn shape(cursor: &mut Cursor<'_>) -> Result<(u32, u64), Stop> {
    let dimensions = cursor.u32()?;
    if dimensions > limit::DIMENSIONS {
        let claimed = u64::from(dimensions);
        let limit = u64::from(limit::DIMENSIONS);
        return Err(GgufError::TooMuch { what: "dimensions of a tensor", claimed, limit }.into());
    }
    let mut elements: u64 = 1;
    for _ in 0..dimensions {
        elements = elements
            .checked_mul(cursor.u64()?)
            .ok_or_else(|| cursor.broken("a tensor larger than any memory"))?;
    }
    Ok((dimensions, elements))
}
