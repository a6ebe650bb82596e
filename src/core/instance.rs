//! The names of an instance and of its sessions: which process holds a lease, and which sessions belong to it.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The number of characters of the owner's name that its sessions carry, from the end.
const TAG: usize = 12;
/// PostgreSQL cuts an application name after this many bytes.
const LONGEST: usize = 63;

/// The name of an instance. It is unique even if host and process id repeat: the first process of each container has
/// the id 1.
#[must_use]
pub fn owner(host: &str, pid: u32, unique: Uuid) -> String {
    format!("{host}-{pid}-{}", unique.simple())
}

/// The part of an owner's name that is unique, for one worker of a process. The workers of one process have leases of
/// their own. When one of them loses its lease, its successor ends the sessions of that worker and of no other.
#[must_use]
pub fn of_worker(process: Uuid, worker: &str) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::new_with_prefix(process.as_bytes()).chain_update(worker).finalize()[..16]);
    Uuid::from_bytes(bytes)
}

/// The end of the owner's name, by which the database finds its sessions (`gov_lease_claim`).
#[must_use]
pub fn tag(owner: &str) -> &str {
    let from = owner.char_indices().rev().nth(TAG - 1).map_or(0, |(at, _)| at);
    &owner[from..]
}

/// The application name of a session. A long name is cut so that the tag fits.
#[must_use]
pub fn application(what: &str, owner: &str) -> String {
    let tag = tag(owner);
    let most = LONGEST.saturating_sub(tag.len() + 1);
    let end = (0..=most.min(what.len())).rev().find(|at| what.is_char_boundary(*at)).unwrap_or(0);
    format!("{} {tag}", &what[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processes_of_two_containers_have_two_names() {
        let names = [1, 2].map(|unique| owner("host", 1, Uuid::from_u128(unique)));
        assert_ne!(names[0], names[1]);
        assert_ne!(tag(&names[0]), tag(&names[1]));
    }

    #[test]
    fn each_worker_of_a_process_has_a_name_of_its_own_that_stays_the_same() {
        let of = |process, worker| of_worker(Uuid::from_u128(process), worker);
        assert_eq!(of(1, "a"), of(1, "a"));
        assert_ne!(of(1, "a"), of(1, "b"));
        assert_ne!(of(1, "a"), of(2, "a"));
    }

    #[test]
    fn a_session_bears_the_tag_of_its_owner_however_long_its_name() {
        let owner = owner("host", 1, Uuid::from_u128(0xabc));
        assert_eq!(application("gov-handoff keeper", &owner), "gov-handoff keeper 000000000abc");
        for what in ["x".repeat(200), "\u{e9}".repeat(99)] {
            let name = application(&what, &owner);
            assert!(name.len() <= LONGEST && name.ends_with(" 000000000abc"), "{name}");
        }
        assert_eq!(tag("short"), "short");
    }
}
