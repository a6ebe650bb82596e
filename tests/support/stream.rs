//! Waits for the daemon's mode, its replication slot and its certifying passes, as the tables and the catalogue show them.

use super::Database;

impl Database {
    /// The slot that a daemon of this database takes unless it is told otherwise.
    pub fn slot(&self) -> String {
        format!("gov_handoff_{}", self.name)
    }

    /// Waits until the heartbeat says this mode.
    pub async fn until_mode(&self, wanted: &str) {
        self.until(&format!(
            "select coalesce((select metadata ->> 'mode' = '{wanted}' from queue_heartbeat
              where executor_name = 'gov_handoff_intake'), false)"
        ))
        .await;
    }

    /// Waits until the slot delivers to a client and the daemon says that it streams.
    pub async fn until_streaming(&self) {
        let slot = self.slot();
        self.until(&format!(
            "select count(*) = 1 from pg_replication_slots where slot_name = '{slot}' and active"
        ))
        .await;
        self.until_mode("stream").await;
    }

    /// Waits until the slot has let go of everything committed before now: no surprise holds it back.
    pub async fn until_stream_is_past_now(&self) {
        let here = self.text("select pg_current_wal_insert_lsn()::text").await;
        self.births("passing", 1).await;
        self.until_acknowledged(&here).await;
    }

    /// Waits until the slot has acknowledged this position.
    pub async fn until_acknowledged(&self, position: &str) {
        let slot = self.slot();
        self.until(&format!(
            "select count(*) = 1 from pg_replication_slots where slot_name = '{slot}' and confirmed_flush_lsn >= '{position}'"
        ))
        .await;
    }

    /// Waits until a certifying pass of this source that began after the call has ended: the second that ends from now on.
    pub async fn until_certified_again(&self, source: &str) {
        for _ in 0..2 {
            let now = self.text("select clock_timestamp()::text").await;
            let ended = format!(
                "select coalesce((select certified_at > '{now}' from gov_worker_frontier where source_name = '{source}'), false)"
            );
            self.until(&ended).await;
        }
    }

    /// Drops the slots of this database once no session has them.
    pub async fn drop_slots(&self) {
        let ours = "from pg_replication_slots where database = current_database()";
        self.until(&format!("select count(*) = 0 {ours} and active")).await;
        self.sql(&format!("select pg_drop_replication_slot(slot_name) {ours}")).await;
    }
}
