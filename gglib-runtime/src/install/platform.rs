//! Which machine this is, as far as wheels care.

use std::process::{Command, Stdio};

use super::{Artifact, InstallError, Needs};

/// A machine as the platform tags of wheels see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// As in [`std::env::consts::OS`].
    pub os: &'static str,
    /// As in [`std::env::consts::ARCH`].
    pub arch: &'static str,
    /// The C library.
    pub libc: Libc,
}

/// The C library of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// glibc of this `(major, minor)` version.
    Glibc(u32, u32),
    /// Another one, musl for example.
    Other,
    /// Could not be asked; `pip` will judge by its own platform tags.
    Unknown,
}

impl Platform {
    /// The machine that we run on. Starts `getconf` on Linux.
    pub fn detect() -> Self {
        Self { os: std::env::consts::OS, arch: std::env::consts::ARCH, libc: Libc::detect() }
    }

    /// Whether `artifact` can run here.
    pub(crate) fn check(&self, artifact: &Artifact) -> Result<(), InstallError> {
        let Needs::LinuxX86_64 { glibc: (major, minor) } = artifact.needs else { return Ok(()) };
        let libc_fits = match self.libc {
            Libc::Glibc(found_major, found_minor) => (found_major, found_minor) >= (major, minor),
            Libc::Other => false,
            Libc::Unknown => true,
        };
        if (self.os, self.arch) == ("linux", "x86_64") && libc_fits {
            return Ok(());
        }
        Err(InstallError::NoWheel {
            artifact: artifact.name,
            needs: format!("Linux on x86_64 with glibc {major}.{minor} or newer"),
            found: self.describe(),
        })
    }

    fn describe(&self) -> String {
        let libc = match self.libc {
            Libc::Glibc(major, minor) => format!(" with glibc {major}.{minor}"),
            Libc::Other if self.os == "linux" => " without glibc".to_owned(),
            Libc::Other | Libc::Unknown => String::new(),
        };
        format!("{} on {}{libc}", self.os, self.arch)
    }
}

impl Libc {
    fn detect() -> Self {
        if cfg!(not(target_os = "linux")) {
            return Libc::Other;
        }
        let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").stdin(Stdio::null()).output();
        match asked {
            Ok(output) if output.status.success() => Self::parse(&String::from_utf8_lossy(&output.stdout)),
            Ok(_) => Libc::Other,
            Err(_) => Libc::Unknown,
        }
    }

    /// Reads what `getconf` prints: `glibc 2.36`.
    fn parse(printed: &str) -> Self {
        let version = || {
            let (major, minor) = printed.trim().strip_prefix("glibc ")?.split_once('.')?;
            Some(Libc::Glibc(major.parse().ok()?, minor.parse().ok()?))
        };
        version().unwrap_or(Libc::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::{ENGINE, SMOLLM2};

    #[test]
    fn what_getconf_prints_is_read() {
        assert_eq!(Libc::parse("glibc 2.36\n"), Libc::Glibc(2, 36));
        assert_eq!(Libc::parse("glibc 2"), Libc::Unknown);
        assert_eq!(Libc::parse("undefined\n"), Libc::Unknown);
    }

    #[test]
    fn the_engine_needs_a_new_enough_glibc_on_linux_x86_64() {
        let fits = |os, arch, libc| Platform { os, arch, libc }.check(&ENGINE).is_ok();
        assert!(fits("linux", "x86_64", Libc::Glibc(2, 35)));
        assert!(fits("linux", "x86_64", Libc::Glibc(2, 41)));
        assert!(fits("linux", "x86_64", Libc::Glibc(3, 0)));
        assert!(fits("linux", "x86_64", Libc::Unknown));
        assert!(!fits("linux", "x86_64", Libc::Glibc(2, 34)));
        assert!(!fits("linux", "x86_64", Libc::Other));
        assert!(!fits("linux", "aarch64", Libc::Glibc(2, 36)));
        assert!(!fits("macos", "x86_64", Libc::Other));
    }

    #[test]
    fn data_fits_everywhere() {
        let platform = Platform { os: "freebsd", arch: "riscv64", libc: Libc::Other };
        assert!(platform.check(&SMOLLM2).is_ok());
    }

    #[test]
    fn the_refusal_says_what_to_install_instead() {
        let platform = Platform { os: "macos", arch: "aarch64", libc: Libc::Other };
        let error = platform.check(&ENGINE).unwrap_err().to_string();
        for words in ["macos on aarch64", "brew install llama.cpp", "PATH", "GGLIB_LLAMA_SERVER"] {
            assert!(error.contains(words), "{error}");
        }
    }
}
