//! Where rows come from.

pub mod stream;
