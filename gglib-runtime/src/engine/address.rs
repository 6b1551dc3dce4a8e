//! Where an engine listens.

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gglib_core::admission::Generation;
use gglib_core::config::Transport;
use rustix::process::geteuid;
use tempfile::TempDir;

/// The mode of a directory that only we can enter.
const PRIVATE: u32 = 0o700;
/// The longest path that the kernel takes for a socket, in bytes and without its final zero.
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
/// The longest name of a socket: the largest generation.
const SOCKET_NAME_MAX: usize = "/18446744073709551615.sock".len();

/// One engine's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in a directory that only we can enter.
    Unix(PathBuf),
    /// A loopback port. Others can reach it and others can take it, so requests carry `key`, and an engine
    /// is ready only when it has shown that it knows it.
    Tcp {
        /// Address and port.
        address: SocketAddr,
        /// The engine's API key.
        key: String,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { address, .. } => write!(f, "http://{address}"),
        }
    }
}

/// Gives each launch an address of its own.
#[derive(Debug)]
pub(super) enum Addresses {
    Unix(Mutex<TempDir>),
    Tcp,
}

impl Addresses {
    pub(super) fn new(transport: Transport) -> io::Result<Self> {
        match transport {
            Transport::Unix => private_dir(bases()).map(Mutex::new).map(Self::Unix),
            Transport::Tcp => Ok(Self::Tcp),
        }
    }

    pub(super) fn next(&self, generation: Generation) -> io::Result<Address> {
        match self {
            Self::Unix(dir) => {
                let mut dir = dir.lock().unwrap_or_else(PoisonError::into_inner);
                if !restore(dir.path()).map_err(|error| named(dir.path(), &error))? {
                    tracing::warn!(path = %dir.path().display(), "others can enter the directory of the sockets; another one is made");
                    // What is there now is not ours to remove.
                    std::mem::replace(&mut *dir, private_dir(bases())?).disable_cleanup(true);
                }
                Ok(Address::Unix(dir.path().join(format!("{}.sock", generation.0))))
            }
            Self::Tcp => {
                let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                Ok(Address::Tcp { address, key: format!("{:032x}", rand::random::<u128>()) })
            }
        }
    }
}

/// Where directories for sockets may be, the best first.
fn bases() -> impl Iterator<Item = PathBuf> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime_dir.into_iter().chain([std::env::temp_dir()])
}

/// A new directory that only we can enter, in the first of `bases` that will do. (The runtime directory of a
/// session stays in the environment of a user who has become another one, and is not theirs.)
fn private_dir(bases: impl Iterator<Item = PathBuf>) -> io::Result<TempDir> {
    let mut reasons = Vec::new();
    for base in bases {
        match private_dir_in(&base) {
            Ok(dir) => return Ok(dir),
            Err(error) => reasons.push(named(&base, &error).to_string()),
        }
    }
    Err(io::Error::other(format!(
        "no directory for the engines' sockets ({}); set TMPDIR to a short, writable directory, or use \
         `engine.transport = \"tcp\"`",
        reasons.join("; ")
    )))
}

fn private_dir_in(base: &Path) -> io::Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("gglib-")
        .permissions(Permissions::from_mode(PRIVATE))
        .tempdir_in(base)?;
    if dir.path().as_os_str().len() + SOCKET_NAME_MAX > SOCKET_PATH_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, "too long for a socket's path"));
    }
    Ok(dir)
}

/// Makes the directory again if it is gone: directories for temporary files are swept of what has long not
/// been used. Whether only we can enter what is there: meanwhile another user may have taken the name.
fn restore(dir: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(PRIVATE).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(dir)?;
            let is_private = found.permissions().mode() & 0o777 == PRIVATE;
            Ok(found.is_dir() && found.uid() == geteuid().as_raw() && is_private)
        }
        made => made.map(|()| true),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_lie_in_a_private_directory_and_differ_by_generation() {
        let addresses = Addresses::new(Transport::Unix).unwrap();
        let path = |generation| match addresses.next(Generation(generation)).unwrap() {
            Address::Unix(path) => path,
            Address::Tcp { .. } => panic!("not a socket"),
        };
        assert_ne!(path(1), path(2));
        let mode = path(1).parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_base_that_will_not_do_is_passed_over_and_all_are_named_when_none_will() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("missing");
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let long = root.path().join("x".repeat(SOCKET_PATH_MAX - SOCKET_NAME_MAX));
        fs::create_dir(&long).unwrap();
        let unusable = [missing.clone(), file.clone(), long.clone()];

        let dir = private_dir(unusable.iter().cloned().chain([root.path().to_owned()])).unwrap();
        assert_eq!(dir.path().parent(), Some(root.path()));
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);

        let error = private_dir(unusable.into_iter()).unwrap_err().to_string();
        for (base, reason) in [(&missing, "No such file"), (&file, "Not a directory"), (&long, "too long")] {
            assert!(error.contains(&format!("{}: {reason}", base.display())), "{error}");
        }
        assert!(error.contains("set TMPDIR to a short, writable directory"), "{error}");
    }

    #[test]
    fn the_last_generation_fits_into_the_longest_directory() {
        let root = tempfile::tempdir().unwrap();
        let name = "/gglib-123456".len() + "/".len();
        let base = SOCKET_PATH_MAX - SOCKET_NAME_MAX - name - root.path().as_os_str().len();
        let base = root.path().join("x".repeat(base));
        fs::create_dir(&base).unwrap();
        let addresses = Addresses::Unix(Mutex::new(private_dir_in(&base).unwrap()));
        let Address::Unix(path) = addresses.next(Generation(u64::MAX)).unwrap() else {
            panic!("not a socket")
        };
        assert_eq!(path.as_os_str().len(), SOCKET_PATH_MAX);
        std::os::unix::net::UnixListener::bind(path).unwrap();
    }

    /// The directory of the next socket.
    fn next_dir(addresses: &Addresses) -> PathBuf {
        let Address::Unix(path) = addresses.next(Generation(1)).unwrap() else { panic!("not a socket") };
        path.parent().unwrap().to_owned()
    }

    #[test]
    fn a_directory_that_was_swept_away_is_made_again() {
        let addresses = Addresses::new(Transport::Unix).unwrap();
        let dir = next_dir(&addresses);
        fs::remove_dir(&dir).unwrap();
        assert_eq!(next_dir(&addresses), dir);
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_others_can_enter_or_own_is_not_used_and_not_removed() {
        type Takes = fn(&Path, &Path);
        let elsewhere = tempfile::tempdir().unwrap();
        let takers: [(&str, Takes); 5] = [
            ("a directory for all", |dir, _| {
                fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
            }),
            ("a directory for the group", |dir, _| {
                fs::set_permissions(dir, Permissions::from_mode(0o710)).unwrap();
            }),
            ("a link", |dir, elsewhere| {
                fs::remove_dir(dir).unwrap();
                std::os::unix::fs::symlink(elsewhere, dir).unwrap();
            }),
            ("a file", |dir, _| {
                fs::remove_dir(dir).unwrap();
                fs::write(dir, "").unwrap();
                fs::set_permissions(dir, Permissions::from_mode(0o600)).unwrap();
            }),
            // Only root can give a directory away.
            ("another user's", |dir, _| {
                let given = std::os::unix::fs::chown(dir, Some(65534), None);
                if given.is_err() {
                    fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
                }
            }),
        ];
        for (what, take) in takers {
            let addresses = Addresses::new(Transport::Unix).unwrap();
            let dir = next_dir(&addresses);
            take(&dir, elsewhere.path());
            let other = next_dir(&addresses);
            assert_ne!(other, dir, "{what}");
            assert_eq!(other.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            assert_eq!(next_dir(&addresses), other, "{what}");
            drop(addresses);
            assert!(fs::symlink_metadata(&dir).is_ok() && !other.exists(), "{what}");
            fs::remove_dir(&dir).or_else(|_| fs::remove_file(&dir)).unwrap();
        }
        assert!(elsewhere.path().exists());
    }

    #[test]
    fn every_tcp_engine_has_its_own_port_and_key() {
        let addresses = Addresses::new(Transport::Tcp).unwrap();
        let Address::Tcp { address, key } = addresses.next(Generation(1)).unwrap() else { panic!("not TCP") };
        let Address::Tcp { key: other, .. } = addresses.next(Generation(2)).unwrap() else {
            panic!("not TCP")
        };
        assert!(address.ip().is_loopback());
        assert_eq!(key.len(), 32);
        assert_ne!(key, other);
    }
}
