//! Temporary files of a test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that no other test has; it is removed when dropped.
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// The name is part of its path, and so of every message about it.
    pub fn new(name: &str, text: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gov-handoff-{}-{number}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }

    /// As a private key has to be: nobody but its owner may read it.
    pub fn private(name: &str, text: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let file = Self::new(name, text);
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        file
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("utf-8")
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
