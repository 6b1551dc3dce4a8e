//! Where an engine listens.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use gglib_core::admission::Generation;
use gglib_core::config::Transport;
use tempfile::TempDir;

/// The longest path that the kernel takes for a socket, without its final zero byte.
const SOCKET_PATH_MAX: usize = 107;

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
    Unix(TempDir),
    Tcp,
}

impl Addresses {
    pub(super) fn new(transport: Transport) -> io::Result<Self> {
        match transport {
            Transport::Unix => private_dir().map(Self::Unix),
            Transport::Tcp => Ok(Self::Tcp),
        }
    }

    pub(super) fn next(&self, generation: Generation) -> io::Result<Address> {
        match self {
            Self::Unix(dir) => {
                let path = dir.path().join(format!("{}.sock", generation.0));
                if path.as_os_str().len() > SOCKET_PATH_MAX {
                    let message = format!(
                        "{} is too long for a socket; set XDG_RUNTIME_DIR or TMPDIR to a shorter directory, or \
                         use `engine.transport = \"tcp\"`",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
                Ok(Address::Unix(path))
            }
            Self::Tcp => {
                let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                Ok(Address::Tcp { address, key: format!("{:032x}", rand::random::<u128>()) })
            }
        }
    }
}

/// A new directory that only we can enter, where the system keeps sockets or else temporary files.
fn private_dir() -> io::Result<TempDir> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let base = if base.is_dir() { base } else { std::env::temp_dir() };
    // tempfile makes directories with mode 0700.
    tempfile::Builder::new().prefix("gglib-").tempdir_in(&base).map_err(|error| named(&base, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
