//! The workers, one small file each. A worker is what its lanes share, the lanes, and what the keeper looks after for it.

pub mod intake;
