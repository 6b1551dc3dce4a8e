//! The workspace as cargo sees it, without resolving anything: works offline and on scratch copies.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{MetadataCommand, Package};

/// The members of a workspace and the directory that holds them.
#[derive(Debug)]
pub struct Workspace {
    /// The directory of the workspace's manifest.
    pub root: PathBuf,
    /// The members; never empty.
    pub packages: Vec<Package>,
}

impl Workspace {
    /// Asks cargo for the workspace that `directory` belongs to.
    ///
    /// A workspace without crates is an error: whatever is checked over it would pass for lack of anything
    /// to look at.
    pub fn read(directory: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .current_dir(directory)
            .no_deps()
            .exec()
            .with_context(|| format!("cargo metadata failed in {}", directory.display()))?;
        let root = metadata.workspace_root.into_std_path_buf();
        ensure!(!metadata.packages.is_empty(), "the workspace at {} has no crates", root.display());
        Ok(Self { root, packages: metadata.packages })
    }

    /// `path` relative to the root, with `/` on every platform.
    pub fn relative(&self, path: &Path) -> String {
        relative(&self.root, path)
    }
}

/// The directory that holds a package's manifest.
pub fn directory(package: &Package) -> &Path {
    package.manifest_path.parent().map_or(Path::new("."), |directory| directory.as_std_path())
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `path` relative to `root`, with `/` on every platform.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    inside.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
