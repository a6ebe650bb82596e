//! What to do about a finding: for each kind one or two sentences and the commands to begin with. Commands that look stand before
//! commands that change something.

use crate::core::finding::KINDS;

/// Advice about one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    pub meaning: &'static str,
    pub todo: &'static str,
    /// `{key}` stands for the key of the finding, `{about}` for what follows the kind in it, which is often a source.
    commands: &'static [&'static str],
}

/// For a kind that this program does not know.
const UNKNOWN: Remedy = Remedy {
    meaning: "A newer program, or another system, raised this.",
    todo: "Look at its detail.",
    commands: &["gov-handoff findings --open"],
};

impl Remedy {
    #[must_use]
    pub fn of(kind: &str) -> Self {
        KINDS.iter().zip(&REMEDIES).find(|(known, _)| **known == kind).map_or(UNKNOWN, |(_, remedy)| *remedy)
    }

    /// The commands for the finding of this key, ready for a shell.
    #[must_use]
    pub fn commands(&self, key: &str) -> Vec<String> {
        let about = key.split_once(':').map_or(key, |(_, about)| about);
        let fill = |c: &&str| c.replace("{key}", &quoted(key)).replace("{about}", &quoted(about));
        self.commands.iter().map(fill).collect()
    }
}

/// One word for a POSIX shell, whatever the text contains.
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@=,+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

const fn remedy(meaning: &'static str, todo: &'static str, commands: &'static [&'static str]) -> Remedy {
    Remedy { meaning, todo, commands }
}

const LOOK: &[&str] = &["gov-handoff doctor"];
const CLOSE: &[&str] = &["gov-handoff findings --open", "gov-handoff findings --resolve {key}"];
const LETTERS: &[&str] = &["gov-handoff dlq list", "gov-handoff dlq replay --all --dry-run"];
const WAITS: &str = "Nothing, unless it stays: it ends by itself.";

/// In the order of [`KINDS`].
const REMEDIES: [Remedy; KINDS.len()] = [
    // audit_discrepancy
    remedy(
        "A full audit found rows without a signal, which it repaired, or doubled signals, or orphans.",
        "Find out what removed or doubled the signals, then audit the source again.",
        &["gov-handoff audit --full --check"],
    ),
    // audit_failed
    remedy(
        "The periodic audit could not read a source.",
        "Make the source readable for the daemon's role; the next audit ends this.",
        &["gov-handoff sources check", "gov-handoff doctor"],
    ),
    // audit_row_refused
    remedy(
        "registry_changelog rejected an audit row of ours.",
        "Look at the constraints of registry_changelog, then close this.",
        CLOSE,
    ),
    // backlog_not_seeded
    remedy(
        "Rows of a backlog have no candidate yet.",
        "Let the sweep run, or run it now.",
        &["gov-handoff candidates --limit 20", "gov-handoff backfill"],
    ),
    // config_invalid
    remedy(
        "A value in dot_config cannot be used; the default applies.",
        "Correct the value that the finding names.",
        &["gov-handoff findings --kind config_invalid"],
    ),
    // cursor_dlq
    remedy("A worker has open dead letters.", "Decide about each: replay or discard it.", LETTERS),
    // cursor_lag
    remedy(
        "A source is behind.",
        "Look at pace, locks and disk of the server.",
        &["gov-handoff status", "gov-handoff doctor"],
    ),
    // cursor_lease_conflict
    remedy(
        "Another instance waits for the lease, or an instance lost its lease while it was alive.",
        "A standby that you want is fine. Otherwise end the instance that should not run.",
        &["gov-handoff status"],
    ),
    // cursor_silent_gap
    remedy(
        "A worker that reads sources is silent.",
        "Start an instance, or see why it hangs.",
        &["gov-handoff watch --once", "gov-handoff health"],
    ),
    // cursor_watermark_regression
    remedy(
        "Something tried to move a watermark back; it was held.",
        "Look for a second instance with an old configuration, or a restored table.",
        &["gov-handoff sources list", "gov-handoff audit --full --check"],
    ),
    // feed_not_conserved
    remedy(
        "Events had lost their position in the feed; missing positions were given again.",
        "Find out what deleted rows of event_feed or event_outbox.",
        &["gov-handoff events tail --limit 20"],
    ),
    // group_invalidation_storm
    remedy(
        "One change concerns more than half of all groups. The scan goes slower, the intake does not.",
        WAITS,
        &["gov-handoff groups --dirty"],
    ),
    // handoff_deferred
    remedy(
        "Certifying waits for its window (off_peak).",
        "Nothing: an operator wants it so.",
        &["gov-handoff config"],
    ),
    // handoff_dlq
    remedy("A source has open dead letters.", "Decide about each: replay or discard it.", LETTERS),
    // handoff_dlq_overflow
    remedy(
        "There are very many open dead letters.",
        "Look for the one cause that most of them share.",
        LETTERS,
    ),
    // handoff_fallback
    remedy(
        "The stream was lost; the daemon polls. No row is lost, latency is.",
        "See why in the mode's reason. It streams again by itself.",
        LOOK,
    ),
    // handoff_lag
    remedy(
        "The daemon is behind.",
        "Look at pace, locks and disk of the server.",
        &["gov-handoff status", "gov-handoff doctor"],
    ),
    // handoff_missed
    remedy(
        "The stream ran and did not bring a row. The reconciler handed the row off.",
        "Check publication and slot. It ends with the next certificate without a miss.",
        &["gov-handoff doctor", "gov-handoff certificates"],
    ),
    // handoff_silent_gap
    remedy(
        "The daemon is silent: nothing is handed off.",
        "Start an instance, or see why it hangs.",
        &["gov-handoff watch --once", "gov-handoff health"],
    ),
    // handoff_throttled
    remedy("The server is loaded, or reads are slow; the daemon goes slower on purpose.", WAITS, LOOK),
    // handoff_unregistered_type
    remedy(
        "A type is inactive, or no rule maps a row; its signals are captured.",
        "Activate the type, or close this.",
        &["gov-handoff types list", "gov-handoff findings --resolve {key}"],
    ),
    // input_rejected
    remedy(
        "The input gate rejected candidates.",
        "Correct the rows at their source.",
        &["gov-handoff checks list", "gov-handoff candidates --limit 20"],
    ),
    // job_dlq
    remedy("Jobs are dead letters.", "Decide about each: replay or discard it.", LETTERS),
    // job_overdue
    remedy(
        "A job's deadline passed before the job ended.",
        "See that an executor of its kind lives and has room.",
        &["gov-handoff status"],
    ),
    // job_tick_failed
    remedy(
        "A part of the queue's tick fails.",
        "Look at the error in the finding; the other parts go on.",
        &["gov-handoff findings --kind job_tick_failed"],
    ),
    // queue.emit_refused
    remedy(
        "An event was refused.",
        "Correct the producer that the finding names.",
        &["gov-handoff types list"],
    ),
    // queue.nvsz_violation
    remedy(
        "A producer or a rule tried to carry a vector.",
        "Correct the producer or the definition.",
        &["gov-handoff sources list"],
    ),
    // queue.payload_violation
    remedy(
        "A producer or a rule tried to carry content.",
        "Correct the producer or the definition.",
        &["gov-handoff sources list"],
    ),
    // queue_worker_silent
    remedy(
        "A watched worker is silent.",
        "Start an instance, or see why it hangs.",
        &["gov-handoff watch --once", "gov-handoff health"],
    ),
    // row_replaced
    remedy(
        "Rows took the keys of other rows; each has an identity of its own.",
        "Find out who reuses keys, then close this.",
        CLOSE,
    ),
    // schedule_failed
    remedy(
        "A schedule could not make its job.",
        "Look at the error in the finding; the other schedules go on.",
        &["gov-handoff findings --kind schedule_failed"],
    ),
    // slot_budget_exceeded
    remedy(
        "The slot retained too much log and was dropped. The daemon polls and makes a new one.",
        "See what held the slot back.",
        &["gov-handoff status", "gov-handoff doctor"],
    ),
    // slot_lost
    remedy(
        "The slot did not continue where the daemon had stopped. The tables close the gap.",
        WAITS,
        &["gov-handoff certificates"],
    ),
    // slot_unused
    remedy(
        "Nobody reads this slot, and the server keeps log for it.",
        "Name it in the configuration, or drop it as the doctor says.",
        LOOK,
    ),
    // source_not_append_only
    remedy(
        "The stream reported something other than an insert.",
        "Find out who changes the table, then close this.",
        CLOSE,
    ),
    // source_not_conserved
    remedy("Ids that were handed off have no row.", "Find out who deleted rows, then close this.", CLOSE),
    // source_unreadable
    remedy(
        "A source cannot be read. The others go on.",
        "Give the daemon's role its columns back.",
        &["gov-handoff sources check", "gov-handoff doctor"],
    ),
    // stream_column_mismatch
    remedy(
        "The published columns are not those of the definition.",
        "Set publication and definition right.",
        &["gov-handoff sources check", "gov-handoff doctor"],
    ),
    // stream_malformed_row
    remedy(
        "The stream brought a row that cannot be read. Nothing of it is acknowledged.",
        "Compare the table with its definition.",
        &["gov-handoff sources check", "gov-handoff doctor"],
    ),
    // stream_unknown_relation
    remedy("The stream brought a table that no definition names.", "Set the publication right.", LOOK),
    // subscription_broadcast
    remedy(
        "Many events matched no subscription and went to everybody.",
        "Add subscriptions for them.",
        &["gov-handoff subscriptions list"],
    ),
    // untrusted_source
    remedy(
        "A producer is not trusted; its signals are captured.",
        "Grant it trust if you know it.",
        &["gov-handoff trust list"],
    ),
    // worker_failing
    remedy(
        "A worker keeps failing; it tries again.",
        "Look at the error in the finding and in the log.",
        &["gov-handoff findings --kind worker_failing", "gov-handoff doctor"],
    ),
    // worker_paused
    remedy(
        "An operator paused a worker.",
        "Resume it when the reason is gone.",
        &["gov-handoff resume {about}"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remedy_stands_beside_the_kind_that_its_comment_names() {
        let source = include_str!("remedy.rs");
        let list = source.split_once("const REMEDIES").map(|(_, rest)| rest).unwrap();
        let named: Vec<_> =
            list.lines().filter_map(|line| line.strip_prefix("    // ")).take(KINDS.len()).collect();
        assert_eq!(named, KINDS);
    }

    #[test]
    fn a_key_is_one_word_of_the_command_whatever_it_contains() {
        let remedy = Remedy::of("slot_lost");
        assert_eq!(remedy.commands("slot_lost:x"), ["gov-handoff certificates"]);
        let closed = Remedy::of("row_replaced").commands("row_replaced:a'b; rm -rf $HOME");
        assert_eq!(closed[1], "gov-handoff findings --resolve 'row_replaced:a'\\''b; rm -rf $HOME'");
        assert_eq!(Remedy::of("worker_paused").commands("worker_paused:w"), ["gov-handoff resume w"]);
        assert_eq!([quoted(""), quoted("-x")], ["''", "'-x'"]);
        assert_eq!(Remedy::of("of tomorrow"), UNKNOWN);
    }
}
