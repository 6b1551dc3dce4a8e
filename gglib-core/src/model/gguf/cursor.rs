//! A position in the bytes that were handed in, and the only place that reads them.

use super::{GgufError, limit};

/// Why reading stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// The bytes end here; the file may not.
    Incomplete { needed: u64 },
    /// No further bytes can help.
    Broken(GgufError),
}

impl From<GgufError> for Stop {
    fn from(error: GgufError) -> Self {
        Self::Broken(error)
    }
}

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// In bytes from the start of the file.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    pub(super) fn broken(&self, what: &'static str) -> Stop {
        GgufError::Broken { offset: self.offset(), what }.into()
    }

    /// The next `n` bytes; nothing is copied.
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], Stop> {
        let needed = self.offset().saturating_add(n);
        let end = usize::try_from(needed).ok().filter(|&end| end <= self.bytes.len());
        let Some(end) = end else { return Err(Stop::Incomplete { needed }) };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Fails at the first byte that is none of the magic's, however few there are.
    pub(super) fn magic(&mut self) -> Result<(), Stop> {
        const MAGIC: &[u8] = b"GGUF";
        let len = MAGIC.len().min(self.bytes.len());
        if self.bytes[..len] != MAGIC[..len] {
            return Err(GgufError::NotGguf.into());
        }
        self.take(MAGIC.len() as u64).map(|_| ())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("`take` gives as many bytes as were asked for"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of `what`, refused beyond `limit`.
    pub(super) fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, Stop> {
        match self.u64()? {
            claimed if claimed > limit => Err(GgufError::TooMuch { what, claimed, limit }.into()),
            count => Ok(count),
        }
    }

    /// A text's bytes, which need not be UTF-8.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.count("bytes of text", limit::STRING)?;
        self.take(len)
    }

    /// The name of an entry or a tensor.
    pub(super) fn name(&mut self) -> Result<&'a str, Stop> {
        let start = self.offset();
        let len = self.count("bytes of a name", limit::KEY)?;
        std::str::from_utf8(self.take(len)?)
            .map_err(|_| GgufError::Broken { offset: start, what: "a name that is not UTF-8" }.into())
    }
}
