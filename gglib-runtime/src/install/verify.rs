//! Comparing files with their pins.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use sha2::{Digest, Sha256};

use super::{InstallError, Wheel};

/// Compares a wheel with its pinned size and checksum; one that differs is removed.
pub(crate) fn wheel(wheel: &Wheel, path: &Path) -> Result<(), InstallError> {
    let size = fs::metadata(path).map_err(InstallError::io("read", path))?.len();
    let verdict = if size == wheel.size {
        let mut file = File::open(path).map_err(InstallError::io("open", path))?;
        let mut hash = Hashing::new(io::sink());
        io::copy(&mut file, &mut hash).map_err(InstallError::io("read", path))?;
        hash.compare(wheel.file, wheel.sha256)
    } else {
        Err(InstallError::Size { file: wheel.file.to_owned(), expected: wheel.size, found: size })
    };
    if verdict.is_err() {
        fs::remove_file(path).map_err(InstallError::io("remove", path))?;
    }
    verdict
}

/// Hashes what is written through it.
pub(crate) struct Hashing<W> {
    inner: W,
    sha256: Sha256,
}

impl<W: Write> Hashing<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, sha256: Sha256::new() }
    }

    /// Compares what was written with `expected`; `file` is named in the error.
    pub(crate) fn compare(self, file: &str, expected: &'static str) -> Result<(), InstallError> {
        let found = hex(&self.sha256.finalize());
        if found == expected {
            return Ok(());
        }
        Err(InstallError::Checksum { file: file.to_owned(), expected, found })
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sha256.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
        text
    })
}
