//! The user that the server runs as. PostgreSQL does not run as root, so root starts it as `postgres` or `nobody`.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::EmbeddedError;

/// The user of the server's processes and files; `None` means our own user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account(Option<Ids>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Decides by the owner of a directory that this process has just made, which is the effective user. This needs no
    /// system call of our own.
    pub(super) fn for_owner_of(directory: &Path) -> Result<Self, EmbeddedError> {
        let owner = directory
            .metadata()
            .map_err(EmbeddedError::io(format!("could not read the owner of {}", directory.display())))?
            .uid();
        if owner != 0 {
            return Ok(Self(None));
        }
        let passwd = std::fs::read_to_string("/etc/passwd")
            .map_err(EmbeddedError::io("could not read /etc/passwd"))?;
        let ids = lookup(&passwd, "postgres").or_else(|| lookup(&passwd, "nobody"));
        ids.map(|ids| Self(Some(ids))).ok_or(EmbeddedError::NoAccount)
    }

    /// A command that runs as this account, in a directory that the account may enter. It has its own process group, so
    /// that a Ctrl-C for this process does not stop the server.
    pub(super) fn command(self, program: impl AsRef<OsStr>, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        if let Self(Some(Ids { uid, gid })) = self {
            command.uid(uid).gid(gid);
        }
        command
    }

    pub(super) fn own(self, path: &Path) -> Result<(), EmbeddedError> {
        let Self(Some(Ids { uid, gid })) = self else { return Ok(()) };
        chown(path, Some(uid), Some(gid))
            .map_err(EmbeddedError::io(format!("could not give {} to user {uid}", path.display())))
    }
}

fn lookup(passwd: &str, name: &str) -> Option<Ids> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    // An entry that maps the name to root is skipped, because initdb would reject root.
    (uid != 0).then_some(Ids { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/sh\nodd:x:0:0::/:\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        assert_eq!(lookup(PASSWD, "postgres"), Some(Ids { uid: 101, gid: 104 }));
        assert_eq!(lookup(PASSWD, "post"), None);
    }

    #[test]
    fn a_second_name_for_root_does_not_count() {
        assert_eq!(lookup(PASSWD, "odd"), None);
    }
}
