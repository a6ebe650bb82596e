//! What must not grow however long the daemon runs, looked at again and again, and the second half compared with the first.
//! Used by the soak in the bench directory and by its short form among the tests.

use tokio_postgres::Client;

/// Our own books: small, rewritten all the time. Not among them: the outbox and the candidates, which grow with the births,
/// and the history of certificates in the outbox, at most one per source and interval, which `retire` bounds.
const BOOKS: [&str; 6] = [
    "queue_heartbeat",
    "gov_worker_cursor",
    "gov_worker_gap",
    "gov_worker_frontier",
    "gov_stream_position",
    "system_issues",
];

/// One look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    pub resident_kib: i64,
    /// Sessions of the daemon, its replication connection included.
    pub sessions: i64,
    /// Open files and sockets of the process.
    pub files: i64,
    /// Log that the slot keeps, in KiB.
    pub retained_kib: i64,
    pub rows: i64,
    pub size_kib: i64,
    pub open_findings: i64,
    /// Captured, staged or set aside.
    pub waiting: i64,
}

/// Looks at the process from outside and at the database.
pub async fn look(client: &Client, pid: u32) -> Look {
    let rows = BOOKS.map(|table| format!("(select count(*) from {table})")).join(" + ");
    let size = BOOKS.map(|table| format!("pg_total_relation_size('{table}')")).join(" + ");
    let sql = format!(
        "select (select count(*) from pg_stat_activity where datname = current_database() and application_name like 'gov-handoff%'),
                (select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) / 1024, 0)::bigint
                   from pg_replication_slots where database = current_database()),
                {rows}, ({size}) / 1024,
                (select count(*) from system_issues where resolved_at is null),
                (select count(*) from event_pending where processed_at is null) + (select count(*) from iu_route_dead_letter)"
    );
    let row = client.query_one(&sql, &[]).await.expect("a look");
    Look {
        resident_kib: resident_kib(pid),
        files: std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count() as i64),
        sessions: row.get(0),
        retained_kib: row.get(1),
        rows: row.get(2),
        size_kib: row.get(3),
        open_findings: row.get(4),
        waiting: row.get(5),
    }
}

fn resident_kib(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// One measure of both halves.
pub struct Half {
    pub name: &'static str,
    pub first: i64,
    pub second: i64,
    /// How much more the second may be: what a page, a segment or an allocator's mood makes of it, and no slope.
    pub allowed: i64,
}

impl Half {
    pub fn is_flat(&self) -> bool {
        self.second <= self.first + self.allowed
    }
}

/// The highest of each half, but for memory, of which the middle one is taken. The first tenth is the start, and not looked at.
pub fn halves(looks: &[Look]) -> Vec<Half> {
    let settled = &looks[looks.len() / 10..];
    let (first, second) = settled.split_at(settled.len() / 2);
    let of = |name, allowed, pick: fn(&Look) -> i64, of: fn(Vec<i64>) -> i64| {
        let half = |looks: &[Look]| of(looks.iter().map(pick).collect());
        Half { name, first: half(first), second: half(second), allowed }
    };
    vec![
        of("memory, KiB", 3 << 10, |l| l.resident_kib, middle),
        of("sessions", 1, |l| l.sessions, most),
        of("open files", 2, |l| l.files, most),
        // Two segments: what a checkpoint lets go, it lets go in whole ones.
        of("log retained, KiB", 32 << 10, |l| l.retained_kib, most),
        of("rows of our books", 30, |l| l.rows, middle),
        of("size of our books, KiB", 1 << 10, |l| l.size_kib, middle),
        of("open findings", 0, |l| l.open_findings, most),
        of("waiting or set aside", 0, |l| l.waiting, most),
    ]
}

fn most(values: Vec<i64>) -> i64 {
    values.into_iter().max().unwrap_or(0)
}

fn middle(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
