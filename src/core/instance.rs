//! The names of a process and of its sessions: which process holds a lease, and which sessions are its own.

use uuid::Uuid;

/// How many characters at the end of an owner's name its sessions bear.
const TAG: usize = 12;
/// PostgreSQL cuts an application's name after as many bytes.
const LONGEST: usize = 63;

/// Unique however often a host or a process id comes again: each container's first process has the id 1.
#[must_use]
pub fn owner(host: &str, pid: u32, unique: Uuid) -> String {
    format!("{host}-{pid}-{}", unique.simple())
}

/// The end of an owner's name, by which the database finds its sessions (`gov_lease_claim`).
#[must_use]
pub fn tag(owner: &str) -> &str {
    let from = owner.char_indices().rev().nth(TAG - 1).map_or(0, |(at, _)| at);
    &owner[from..]
}

/// What a session of this owner is called. A long name gives way to the tag.
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
