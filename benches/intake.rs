//! `make bench`: how close the intake comes to what the server itself can do. Ratios within one run, never absolute times:
//! the limit is measured on the same server, the same data and the same day as ours.
//!
//! ```text
//!  poll      backlog by keyset            against the same effects in pure SQL on one connection
//!  stream    backlog through the slot     against the slower of pg_recvlogical to /dev/null and that SQL
//!  sweep     a backlog that is seeded       against the same effects in pure SQL on one connection
//!  latency   200 commits/s, one birth each, commit to durable handoff, against one commit's own round trip
//!  family    the same with all workers, and with the feed    against the same without
//!  scan      1,000 dirty groups among a million              against as many among ten thousand
//!  unread    1,000 unread events among five million          against as many among a hundred thousand
//!  passes    the certifying pass            against a bare sequential count(*) of the same table
//!            the incremental pass           on a table ten and a hundred times as large against the smallest
//!  jobs      enqueue, and claim and finish      against pgmq's semantics in SQL of our own; and under a held snapshot
//!  memory    the process's high-water mark in each of these
//! ```
//!
//! The product is the release binary as a child process; the server is the embedded one with fsync on.
//! Arguments (after `--`): `--rows N`, `--seconds N`, `--hold N`, `--quick`, `--only poll,stream,sweep,latency,family,scan,unread,passes,jobs`.

mod support;

use std::process::ExitCode;
use support::options::Options;
use support::report::Report;
use support::world::World;
use support::{backlog, family, jobs, latency, passes, scan, sweep, unread};

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    // The cluster is started before the runtime, because starting it blocks.
    let world = World::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(measure(&world, &options));
    report.print();
    report.write_json(&options, world.version());
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(world: &World, options: &Options) -> Report {
    let mut report = Report::default();
    if options.wants("poll") || options.wants("stream") {
        let sql = backlog::poll(world, options, &mut report).await;
        if options.wants("stream") {
            backlog::stream(world, options, sql, &mut report).await;
        }
    }
    if options.wants("sweep") {
        sweep::measure(world, options, &mut report).await;
    }
    if options.wants("latency") {
        latency::measure(world, options, &mut report).await;
    }
    if options.wants("family") {
        family::measure(world, options, &mut report).await;
    }
    if options.wants("scan") {
        scan::measure(world, options, &mut report).await;
    }
    if options.wants("unread") {
        unread::measure(world, options, &mut report).await;
    }
    if options.wants("passes") {
        passes::measure(world, options, &mut report).await;
    }
    if options.wants("jobs") {
        jobs::measure(world, options, &mut report).await;
    }
    report
}
