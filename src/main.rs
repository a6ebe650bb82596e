//! The command line of gov-handoff.

fn main() {}
