//! The one table from SQLSTATE to kind of error, with the states that our own gates raise.

use super::Kind;
use tokio_postgres::error::SqlState;

/// Another instance holds the lease, or the term is over.
pub const LEASE_LOST: &str = "GH001";
/// Another writer changed the open id ranges.
pub const RANGES_CHANGED: &str = "GH002";
/// What was asked for is refused on purpose.
pub const REFUSED: &str = "GH003";
/// The definition that mapped a row is no longer in force.
pub const REDEFINED: &str = "GH004";

/// The SQLSTATEs of our own gates. A test compares them with what the migrations raise.
pub const GATE_STATES: [(&str, Kind); 4] = [
    (LEASE_LOST, Kind::LeaseLost),
    (RANGES_CHANGED, Kind::RangesChanged),
    (REFUSED, Kind::Refused),
    (REDEFINED, Kind::Redefined),
];

/// The table from SQLSTATE to kind. A state that it does not name is about the data: bad values, violated constraints,
/// and errors that triggers, routines and views of other owners raise about a row, with SQLSTATEs of their own.
#[must_use]
pub fn classify(state: &SqlState) -> Kind {
    let code = state.code();
    if let Some((_, kind)) = GATE_STATES.iter().find(|(ours, _)| *ours == code) {
        return *kind;
    }
    match *state {
        SqlState::INSUFFICIENT_PRIVILEGE => Kind::Privilege,
        SqlState::UNDEFINED_DATABASE => Kind::Authentication,
        // A trigger of the live tables writes to another server, which cannot be reached.
        SqlState::FDW_UNABLE_TO_ESTABLISH_CONNECTION => Kind::Transient,
        _ => match &code[..2.min(code.len())] {
            "08" => Kind::Connection,
            "28" => Kind::Authentication,
            // About the session, the transaction, the server's resources or its configuration; never about the row.
            "25" | "26" | "40" | "53" | "55" | "57" | "58" | "72" | "F0" => Kind::Transient,
            "42" => Kind::Catalogue,
            "XX" => Kind::Internal,
            _ => Kind::Data,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Policy;

    #[test]
    fn each_state_has_its_policy() {
        for (code, policy) in [
            ("40P01", Policy::Retry),
            ("57P01", Policy::Retry),
            ("53300", Policy::Retry),
            ("23514", Policy::SetAside),
            ("22P02", Policy::SetAside),
            ("54000", Policy::SetAside),
            ("P0001", Policy::SetAside),
            ("QL001", Policy::SetAside),
            ("20000", Policy::SetAside),
            ("27000", Policy::SetAside),
            ("0A000", Policy::SetAside),
            ("26000", Policy::Retry),
            (LEASE_LOST, Policy::StandBy),
            (RANGES_CHANGED, Policy::Retry),
            (REFUSED, Policy::Stop),
            (REDEFINED, Policy::Retry),
            ("28P01", Policy::Stop),
            ("42501", Policy::Stop),
            ("42P01", Policy::Stop),
        ] {
            assert_eq!(classify(&SqlState::from_code(code)).policy(), policy, "{code}");
        }
    }
}
