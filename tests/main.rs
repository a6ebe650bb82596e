//! The one integration test binary; each module's comment says what it proves.
//!
//! Run it by plain `cargo test`: all tests then share one process and so one PostgreSQL ([`support`]). A runner
//! that gives each test a process of its own, as `cargo nextest` does, starts a cluster for each.

// The harness: the shared cluster, a fresh database for each test, the daemon, the command line, and waits.
mod support;

// The private PostgreSQL itself: versions, restarts, crashes, and that nothing is left behind.
mod embedded;

// All ten kinds and the unmapped capture: the same rows through stream and poll.
mod kinds;

// Stream, poll and replay over the same rows at once: nothing twice, no mark counted twice.
mod once;

// Inactive types: captured, one finding each, drained under the same identities, never twice.
mod types;

// Our own audit rows in a source that we read never come back.
mod audit_rows;

// What stands in content columns is found in no table, log, error or stream.
mod canary;

// The program and the database agree on who a row is.
mod identity;

// Birth untouched: the sources' catalogue is as it was, and the daemon's role can write no table.
mod untouched;

// Migrations: fresh, again, dry, adopted, refused, and the way back.
mod migrations;

// Kill -9 at each step around apply and acknowledge, at random, and of the server: nothing missing, nothing twice.
mod crash;

// A million births in one transaction, long backlogs, wide rows: bounded memory; an idle slot: bounded log.
mod bounds;

// Poll mode: late commits, holes, ids by hand, prepared transactions, keys without order.
mod late;

// A lone signal's gate and the general one agree.
mod lone;

// Wrong input and missing means: one line that says what to do, the right exit code, nothing written.
mod refusals;

// Settings and help: who wins over whom, and an example for every command.
mod settings;

// What the stream did not expect: a finding each, one source left to its table, and the others keep streaming.
mod surprises;

// The frame of the worker family: leases of their own, pausing, checkpoints, and a fault that stays with its worker.
mod family;

// Every gate refuses a lost lease and an old definition, and locks rows in one order.
mod gates;

// What the documents claim of the code is there: the tests they name, and how long the README may be.
mod documents;

// What becomes of the rows that exist when a source is registered, and the sweep that seeds them.
mod backlog;

// What a stranger sees first: the demo ends with a verdict that holds, and the verdict can fail.
mod demo;

// The module directions of ARCHITECTURE.md.
mod architecture;

// No loss and no duplicate while daemon, slot, server and network fail: seeded writers, seeded faults, a set comparison.
mod hostile;

// The proof of no loss: audits, certificates, frontiers, retention, conservation.
mod proof;

// What audits and replays look for and say: scope, names, strays, reasons, what was drained or retired.
mod audit;

// The mode machine: whatever takes the stream away, it comes back by itself and nothing is missed.
mod modes;

// The slot, the publication and the server behind them: not ours, or made again.
mod slots;

// `selftest`: it passes, leaves nothing behind however it ends, and can fail.
mod selftest;

// `doctor`: each trouble is named with what to do, and nothing is changed.
mod doctor;

// Each check of `doctor` is broken by itself on a real server, and put right by the SQL that `doctor` prints.
mod doctor_fixes;

// Each reason for a repair as the certificates tell it; the stream is blamed only for what it should have had.
mod reasons;

// Metrics and health: what the tables say, repairs that are never forgotten, pages that cannot hurt.
mod metrics;

// The page and its API: one verdict for people and programs, everything escaped, nobody who may not ask, bounded statements.
mod page;

// The page in a browser: what it shows of a running system, without an error on the console.
mod browser;

// The HTTP surface under malformed and random requests: nothing changes, nothing falls down.
mod http_fuzz;

// Standbys, failover, backups put back, dumps loaded elsewhere, wraparound: on real servers.
mod servers;

// Never silent: the watchdog, the heartbeat, standbys that watch, findings as events.
mod watch;

// Candidates and groups get the verdicts that an independent model gives them, whatever is marked, moved or retired meanwhile.
mod scan;
// A handoff that concerns every group costs the intake one row; the scan marks the groups, also after kills.
mod invalidation;
// The input gate accepts and rejects candidates for reasons that can be switched off, and looks again when a reason may have gone.
mod input_gate;
// Verdict rules are data: refused by name, tried without being stored, and in force for every group.
mod rules;
// Every kind of finding is raised by what it is about, and resolved by its end; load slows us down, visibly.
mod findings;

// Who may do what: every table, view and function against a table of privileges, for each role.
mod roles;

// Onlookers read summaries: no status page ever scans a source, the outbox or the candidates.
mod no_ui_scan;

// Poison rows: staged, retried, dead-lettered; never lost, never in the way.
mod dead_letters;

// Dead letters: listed, replayed, discarded, superseded, by whom and why.
mod dlq;

// Trust: unknown producers are captured, visible and without effect until an operator trusts them.
mod trust;

// `exclude` has one meaning: for 44 column types, every operator and values around those that are there, the server's filter, in
// statements and in publications, leaves out what the rules exclude and nothing else; and both paths bring the same text.
mod one_evaluator;

// Hostile input: every row is handed off or set aside with a reason, through either path.
mod hostile_input;

// One writer at any moment, whatever happens to two or five instances: shown from the order of what was committed.
mod instances;

// The server lacks log space, connections, writes, time or a steady clock for a while: delayed, visible, recovered.
mod server_faults;

// The acceptance tests of the worker-cursor family, by name.
mod acceptance;

// Half a minute at sixty times the usual cadence: memory, sessions, retained log, our books and open findings stay flat.
mod soak;

// What an ordinary role, a changed definition, retention or a key that comes again could do to us, and no longer can.
mod adversary;

// The same by the roles of the queue: idle transactions, locks through gates, and characters that cannot be sent.
mod adversary_queue;

// The same by a place that is taken beforehand: keys and subjects that only gov-handoff itself uses.
mod reserved;

// Parts of the gates that are written out more than once: each copy says the same.
mod copies;

// The books corrupted by hand: certificate or audit says so.
mod claims;

// TLS: a server is verified where that is asked for, by name and by address, for queries and for the stream.
mod tls;

// The periodic full audit: on its schedule, resumable, in turns with the command; candidates past their time.
mod full_audit;

// Pages that fail: halved, the bad item set aside, the worker reported, the others unhurt.
mod pages;

// Attacks on the lease: locks of strangers, names that come again, a holder that is stopped.
mod takeover;

// Each source is on its own: one that cannot be read is a finding and costs its neighbours nothing.
mod neighbours;

// A reader gives way: a session that waits for a source that we read waits about half a second.
mod give_way;

// A pooler that drops what our sessions ask for is noticed, and refused with what to do.
mod pooler;

// Error codes and man pages: every printed error has its code, every code is explained, every command has a page.
mod codes;

// Who an event is for: the six steps, membership, mute, scope and the switch against an independent model; subscription files.
mod recipients;
// The emit gate: each rule, refusals that are answers, captures, cycles, and what a producer may do.
mod emit;

// The feed: one position for every event in the order of commits; a consumer that keeps one position misses nothing.
mod feed;

// Read state: the functions against a model of sets, late commits, acknowledgements, and the cost of what is unread.
mod read_state;

// The delayed lane, escalation and the broadcast watch under a clock of the test.
mod delayed;

// What one call or command looks at is bounded, and it says where it stopped.
mod bounded_reads;

// The views for alerts, and the view of events of both outboxes.
mod views;
// The nine states of a job: 81 pairs, each through its gate or refused by the database.
mod job_states;

// The client of the job queue, and the example executor, killed in the middle of its jobs.
mod queue;

// `jobs` and `executors`: what an operator sees and decides, and what is refused with which code.
mod jobs_cli;

// `docs/jobs.md`: its executor in shell and its statements, against a real server.
mod jobs_page;

// Graphs of jobs: made whole or not at all, in the order of their dependencies, and never a cycle.
mod job_graphs;

// Claimers that are killed, stopped and cut off over thousands of jobs: exactly once, by the transition log alone.
mod job_hostile;

// Jobs: keys, claims and tokens, limits, scopes, retries, dead letters, deadlines, roles, and what the tick finds.
mod jobs;

// Schedules against a model that walks through time minute by minute: zones, gaps, folds, policies, outages, many ticks at once.
mod schedules;

// `schedules`: a file is applied, compared and refused; schedules are paused and resumed.
mod schedules_cli;

// Dashboard, alert rules and the metrics page: they name only what exists, and everything that exists is documented.
mod monitoring;

// `trace`: one row, one truth, in each of its possible states; index look-ups only.
mod trace;

// `status` is a verdict: first line, exit code and JSON agree, in each of the four states.
mod status;

// Consumers: act once, the examples of docs/events.md, anti-patterns that are refused, what producers and executors may do.
mod consumers;

// docs/sql.md is what the catalogue says, and each of its examples runs.
mod sql_reference;

// What the service manager hears: ready, alive, stopping, over a real unix socket.
mod service_manager;

// Image, compose, unit and manifest: parsed, linted by the tools that are here, and their roles tried on a real server.
mod deployment;

// Releases: a released migration is never altered, and a database that a release made is upgraded.
mod upgrade;

// The commands of the documents, copied line by line: tutorial, README and every other page, each in a session of its own.
mod walkthrough;
