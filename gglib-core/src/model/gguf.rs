//! What a model file says about itself: a bounded reader of GGUF headers, versions 2 and 3.
//!
//! A header is the part of the file before the weights: metadata, then a table of tensors (the format is
//! `docs/gguf.md` of ggml). [`read`] takes the beginning of a file that the caller has read, and either
//! understands the header, or says how many bytes it wants to see. Nothing is allocated by a length that the
//! file claims: arrays are stepped over, names and texts are borrowed from the bytes, and every count has a
//! [`limit`]. So a damaged or hostile file costs an error, and no memory.

use cursor::{Cursor, Stop};
use metadata::Metadata;

pub use error::GgufError;
pub use facts::{Attention, Facts, PerLayer};
pub use ggml_type::GgmlType;
pub use split::Split;
pub use tensors::Tensors;

mod cursor;
mod error;
mod facts;
mod ggml_type;
mod metadata;
mod split;
mod tensors;

/// What a header may hold at most. Far above every model that is published; a file beyond is broken.
pub mod limit {
    /// Length of a header, in bytes. The largest vocabularies take about 20 MB.
    pub const HEADER: u64 = 256 << 20;
    /// Metadata entries.
    pub const KEYS: u64 = 1 << 16;
    /// Length of a key, in bytes (the format's own limit).
    pub const KEY: u64 = (1 << 16) - 1;
    /// Length of a text, in bytes. Chat templates are the longest.
    pub const STRING: u64 = 16 << 20;
    /// Elements of an array.
    pub const ARRAY: u64 = 1 << 24;
    /// Arrays within arrays.
    pub const NESTING: u32 = 4;
    /// Tensors of one file.
    pub const TENSORS: u64 = 1 << 17;
    /// Dimensions of a tensor. ggml knows four.
    pub const DIMENSIONS: u32 = 8;
    /// Layers of a model.
    pub const LAYERS: u32 = 4096;
}

/// What came of reading the beginning of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The whole header was there.
    Whole(Box<Facts>),
    /// The header is longer than what was handed in.
    Incomplete {
        /// Bytes from the start of the file that are needed to come further; more than were given, and never
        /// more than the file has or than [`limit::HEADER`]. Reading twice as much at a time is a good rule.
        needed: u64,
    },
}

/// Reads the header in `beginning`, the first bytes of a file of `file_size` bytes.
///
/// # Errors
/// When the file is no GGUF file, is cut off, breaks the format or goes beyond a limit.
///
/// ```
/// use gglib_core::model::gguf::{self, GgufError, Reading};
///
/// let header = b"GGUF\x03\0\0\0";
/// assert_eq!(gguf::read(header, 1000), Ok(Reading::Incomplete { needed: 16 }));
/// assert!(matches!(gguf::read(header, 8), Err(GgufError::CutOff { .. })));
/// assert_eq!(gguf::read(b"PK\x03\x04", 1000), Err(GgufError::NotGguf));
/// ```
pub fn read(beginning: &[u8], file_size: u64) -> Result<Reading, GgufError> {
    let mut cursor = Cursor::new(beginning);
    match header(&mut cursor, file_size) {
        Ok(facts) => Ok(Reading::Whole(Box::new(facts))),
        Err(Stop::Broken(error)) => Err(error),
        Err(Stop::Incomplete { needed }) if needed > file_size => {
            Err(GgufError::CutOff { needed, len: file_size })
        }
        Err(Stop::Incomplete { needed }) if needed > limit::HEADER => {
            Err(GgufError::TooMuch { what: "bytes of header", claimed: needed, limit: limit::HEADER })
        }
        Err(Stop::Incomplete { needed }) => Ok(Reading::Incomplete { needed }),
    }
}

fn header(cursor: &mut Cursor<'_>, file_size: u64) -> Result<Facts, Stop> {
    cursor.magic()?;
    let version = cursor.u32()?;
    match version {
        2 | 3 => {}
        swapped if swapped.trailing_zeros() >= 16 => return Err(GgufError::BigEndian.into()),
        version => return Err(GgufError::Version { version }.into()),
    }
    let tensor_count = cursor.count("tensors", limit::TENSORS)?;
    let key_count = cursor.count("metadata entries", limit::KEYS)?;
    let metadata = Metadata::read(cursor, key_count)?;
    let (mut tensors, data) = Tensors::read(cursor, tensor_count, metadata.alignment()?)?;
    tensors.fit(&data, file_size)?;
    Ok(Facts::new(version, &metadata, tensors)?)
}
