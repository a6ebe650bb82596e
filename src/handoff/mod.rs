//! The spine: what happens to a row, whichever way it came in. The daemon, the audit and the commands all use it.
//!
//! ```text
//!   row ──▶ mapped_row ──▶ missing ──▶ deliver ──▶ recorded (the caller may acknowledge)
//!           core::handoff  (behind a      │ core::coalesce, one commit
//!                           stream)       └─ rejected by the database ──▶ quarantine: staged, or a dead letter
//!                                                      dead_letter_replay ──▶ deliver again
//! ```

pub mod dead_letter_replay;
pub mod deliver;
pub mod mapped_row;
pub mod missing;
pub mod quarantine;
