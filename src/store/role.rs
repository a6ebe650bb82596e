//! The role of a session, as a type. A session offers only the calls of its role, so using a session for the wrong
//! purpose does not compile.
//!
//! | role           | looks on | [`Reads`] | [`Writes`] | [`Administers`] | opened by                                 |
//! |----------------|----------|-----------|------------|-----------------|-------------------------------------------|
//! | [`Onlooker`]   | yes      |           |            |                 | `open_observer`, `open_observer_within`   |
//! | [`Reader`]     | yes      | yes       |            |                 | `open_reader`                             |
//! | [`Writer`]     | yes      |           | yes        |                 | `open_writer_within`, `open_claimant`     |
//! | [`ReadWriter`] | yes      | yes       | yes        |                 | the others of [`connect`](super::connect) |
//! | [`Admin`]      | yes      | yes       | yes        | yes             | `open_patient`                            |
//!
//! - To look on is to read our own tables and views and the catalogue. Every role may.
//! - [`Reads`]: the rows of source tables.
//! - [`Writes`]: the gates, and nothing but the gates: batches, leases, findings, dead letters, the staging, certificates.
//! - [`Administers`]: what the gates do not cover: migrations, publication, slots, and statements of the caller's own.
//!
//! The database checks as well: the roles of `migrations/0007_roles.sql` apply whatever the type of a session is.
//!
//! A writer records a batch:
//!
//! ```
//! use gov_handoff::core::{captured_by::CapturedBy, coalesce::Batch, handoff::Handoff};
//! use gov_handoff::store::{Session, apply::Advance, lease::Lease, role};
//!
//! async fn record(session: &Session<role::Writer>, lease: &Lease, batch: &Batch<&Handoff>) -> bool {
//!     session.apply(lease, CapturedBy::Stream, batch, &[], Advance::Nothing, &[]).await.is_ok()
//! }
//! ```
//!
//! The same with an onlooker does not compile:
//!
//! ```compile_fail,E0599
//! use gov_handoff::core::{captured_by::CapturedBy, coalesce::Batch, handoff::Handoff};
//! use gov_handoff::store::{Session, apply::Advance, lease::Lease, role};
//!
//! async fn record(session: &Session<role::Onlooker>, lease: &Lease, batch: &Batch<&Handoff>) -> bool {
//!     session.apply(lease, CapturedBy::Stream, batch, &[], Advance::Nothing, &[]).await.is_ok()
//! }
//! ```
//!
//! A session may give up a part of what it can do:
//!
//! ```
//! use gov_handoff::store::{Session, role};
//!
//! fn only_read(session: Session<role::ReadWriter>) -> Session<role::Reader> {
//!     session.into_role()
//! }
//! ```
//!
//! It never gains one:
//!
//! ```compile_fail,E0277
//! use gov_handoff::store::{Session, role};
//!
//! fn write_as_well(session: Session<role::Reader>) -> Session<role::ReadWriter> {
//!     session.into_role()
//! }
//! ```
//!
//! [`into_role`]: super::Session::into_role

/// Looks on: status, metrics, health, certificates, lists.
#[derive(Debug)]
pub enum Onlooker {}

/// Reads sources: passes, audits, the doctor.
#[derive(Debug)]
pub enum Reader {}

/// Writes through the gates: batches, the lease, the regular upkeep of the daemon.
#[derive(Debug)]
pub enum Writer {}

/// Reads and writes: the retry lane, the audit, a replay and the other commands.
#[derive(Debug)]
pub enum ReadWriter {}

/// Does what an operator asks for: migrations, replication objects, the selftest.
#[derive(Debug)]
pub enum Admin {}

/// Only this module says which roles there are and what each may do.
mod sealed {
    pub trait Role {}
    impl Role for super::Onlooker {}
    impl Role for super::Reader {}
    impl Role for super::Writer {}
    impl Role for super::ReadWriter {}
    impl Role for super::Admin {}
}

/// The role reads rows of source tables.
pub trait Reads: sealed::Role {}
impl Reads for Reader {}
impl Reads for ReadWriter {}
impl Reads for Admin {}

/// The role writes through the gates.
pub trait Writes: sealed::Role {}
impl Writes for Writer {}
impl Writes for ReadWriter {}
impl Writes for Admin {}

/// The role makes and drops what the gates do not cover.
pub trait Administers: sealed::Role {}
impl Administers for Admin {}

/// The role can do all that the other one can.
pub trait Includes<Part>: sealed::Role {}
impl<R: sealed::Role> Includes<Onlooker> for R {}
impl Includes<Reader> for ReadWriter {}
impl Includes<Writer> for ReadWriter {}
impl Includes<ReadWriter> for ReadWriter {}
impl Includes<Reader> for Admin {}
impl Includes<Writer> for Admin {}
impl Includes<ReadWriter> for Admin {}
