//! A folder of tiny wheels that the real pip takes for its index.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use gglib_runtime::install::{Pip, Wheel};
use sha2::{Digest, Sha256};
use zip::{ZipWriter, write::SimpleFileOptions};

pub(crate) struct Shelf {
    path: PathBuf,
    _own: Option<tempfile::TempDir>,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        let own = tempfile::tempdir().unwrap();
        Self { path: own.path().to_owned(), _own: Some(own) }
    }

    /// A shelf that belongs to another process.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, _own: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// pip with this shelf as its only source.
    pub(crate) fn pip(&self) -> Pip {
        Pip::default().env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", &self.path)
    }

    /// Puts `package==1.0` with these members on the shelf.
    pub(crate) fn wheel(&self, package: &'static str, members: &[(&str, &str)]) -> Wheel {
        let module = package.replace('-', "_");
        let file = format!("{module}-1.0-py3-none-any.whl");
        let path = self.path.join(&file);
        if !path.exists() {
            write(&path, package, &module, members);
        }
        let bytes = fs::read(&path).unwrap();
        Wheel {
            package,
            version: "1.0",
            file: file.leak(),
            size: bytes.len().try_into().unwrap(),
            sha256: sha256(&bytes).leak(),
        }
    }
}

fn write(path: &Path, package: &str, module: &str, members: &[(&str, &str)]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n");
    let tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let dist_info = format!("{module}-1.0.dist-info");
    let mut member = |name: &str, content: &str| {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    };
    for (name, content) in members {
        member(name, content);
    }
    member(&format!("{dist_info}/METADATA"), &metadata);
    member(&format!("{dist_info}/WHEEL"), tags);
    member(&format!("{dist_info}/RECORD"), "");
    zip.finish().unwrap();
}

pub(crate) fn leak<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from_digit(digit.into(), 16).unwrap())
        .collect()
}
