//! Why a model file was not understood.

use thiserror::Error;

/// Why a file's header could not be read. The texts go to people, after the file's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GgufError {
    /// Another kind of file.
    #[error(
        "not a GGUF model file (it does not begin with \"GGUF\"); convert the model or download it as GGUF"
    )]
    NotGguf,
    /// A version of the format that this reader does not know.
    #[error("GGUF version {version} is not supported, only 2 and 3; convert the model again")]
    Version {
        /// The version that the file states.
        version: u32,
    },
    /// Made for a machine with the other byte order.
    #[error("a big-endian GGUF file; download or convert the little-endian one")]
    BigEndian,
    /// The file ends before what it announces.
    #[error("cut off: it has {len} bytes and announces {needed} or more; download it again")]
    CutOff {
        /// Bytes that the file must have at least.
        needed: u64,
        /// Bytes that it has.
        len: u64,
    },
    /// The bytes do not follow the format.
    #[error("broken at offset {offset}: {what}; download it again")]
    Broken {
        /// In bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// More of something than any real model has.
    #[error(
        "broken: it announces {claimed} {what}, and {limit} are the most that is taken; download it again"
    )]
    TooMuch {
        /// What is counted.
        what: &'static str,
        /// The file's number.
        claimed: u64,
        /// The largest that is accepted.
        limit: u64,
    },
    /// A fact that every model needs is missing or of the wrong kind.
    #[error("the metadata has no usable `{key}`; convert the model again")]
    Missing {
        /// The metadata key, with the architecture in front.
        key: String,
    },
}
