//! Files with secrets: read only if nobody else may read them, as libpq demands.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who may read a file beside its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    Owner,
    /// The group too, if the file belongs to root: so a system gives a key to the services that need it.
    GroupOfRoot,
}

/// Refuses a file that others may read.
pub fn check_private(path: &Path, privacy: Privacy) -> Result<()> {
    let file = std::fs::metadata(path)?;
    if !file.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a plain file"));
    }
    let others = if privacy == Privacy::GroupOfRoot && file.uid() == 0 { 0o037 } else { 0o077 };
    if file.mode() & others != 0 {
        let (mode, path) = (file.mode() & 0o777, path.display());
        let told = format!("others may read it (mode {mode:04o}); run `chmod 600 {path}`");
        return Err(Error::new(ErrorKind::PermissionDenied, told));
    }
    Ok(())
}

pub fn read_private(path: &Path, privacy: Privacy) -> Result<String> {
    check_private(path, privacy)?;
    std::fs::read_to_string(path)
}
