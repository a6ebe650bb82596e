-- Comments on the tables, columns, views and functions of the steps up to 0019, for people who look at the catalogue and for
-- docs/sql.md, which is generated from it. The substrate gets none: its tables may be the live system's.
--
-- A function is found by its name, because names of ours are unique. An object that has a comment keeps it.
do $$
declare
    c record;
    f regprocedure;
begin
    for c in
        select * from (values
            ('gov_handoff_identity', 'The identity of a source row, a version-8 UUID: with a kind the id of its signal, without one its subject reference.'),
            ('gov_definition_fence', 'rejects a batch that was mapped by a definition that is no longer in force'),
            ('gov_watermark_ahead', 'whether a watermark lies ahead of the recorded one'),
            ('gov_handoff_emit', 'a step of a batch: inserts the signals whose type is active'),
            ('gov_handoff_capture', 'a step of a batch: captures signals whose type is inactive, whose producer is not trusted, or that no rule maps'),
            ('gov_handoff_mark', 'a step of a batch: marks the groups and objects of new signals'),
            ('gov_handoff_mark_new', 'the same marks, when only a part of the batch was new'),
            ('gov_marks_put', 'writes the marks of groups and objects'),
            ('gov_groups_touch', 'marks existing groups that had no change of their own'),
            ('gov_candidate_seed', 'the marks of objects that are seeded'),
            ('gov_handoff_advance', 'a step of a batch: moves ranges, cursors and the position of the stream, and checks the fence last'),
            ('gov_handoff_apply', 'Records one batch in one commit: signals, captures, marks, ranges, cursors, stream position.'),
            ('gov_handoff_apply_one', 'Records a single signal, as gov_handoff_apply does.'),
            ('gov_handoff_probe', 'Whether the gates can work at all: it names each table and column that they write, and writes nothing.'),
            ('gov_clock_mend', 'mends ticks that lie ahead of the clock, after the clock was set back'),
            ('gov_lease_claim', 'takes a lease that is free, expired, already ours, or whose holder has no session any more'),
            ('gov_lease_renew', 'ticks a lease and publishes the report of its holder; false: the lease is lost'),
            ('gov_lease_modes', 'the history of modes with one entry more, if the mode or its reason changed'),
            ('gov_lease_stolen', 'rejects an operator who acts under the lease of the daemon'),
            ('gov_lease_resign', 'Gives a lease up; false: it was not held.'),
            ('gov_lease_fence', 'the fence of every effect: fails with GH001 unless this owner holds the lease in this term'),
            ('gov_lease_or_operator', 'whether the caller may act without a lease'),
            ('gov_severity_rank', 'the severities in order, as numbers'),
            ('gov_finding_emit', 'announces a finding as an event, if its type is active'),
            ('gov_finding_raise', 'Raises a finding, or counts it again: a row of system_issues for each key.'),
            ('gov_finding_resolve', 'Closes a finding; false: it was not open.'),
            ('gov_finding_sustain', 'raises a finding that still holds, counted at most once in an interval'),
            ('gov_audit_write', 'writes an audit row into the changelog; its rejection is a finding'),
            ('gov_audit_note', 'writes an audit row, behind the fence'),
            ('gov_type_set_active', 'Activates or deactivates an event type; true: it changed.'),
            ('gov_handoff_drain', 'Moves up to p_limit captures of an active type to the outbox. An operator passes null for owner and term.'),
            ('gov_handoff_drain_some', 'moves some captures to the outbox, and halves a batch that the outbox rejects'),
            ('gov_handoff_drain_refused', 'notes that the outbox rejected a captured signal'),
            ('gov_source_bind', 'binds the name of a source to its table'),
            ('gov_source_open', 'opens the ids that a key of a source can have'),
            ('gov_source_mapping', 'how the rules of a definition name their rows, by kind'),
            ('gov_source_renew', 'puts another definition in force'),
            ('gov_source_put', 'Registers or redefines a source: added, changed or unchanged. p_lo and p_hi are the bounds of an integer key.'),
            ('gov_source_remove', 'Stops reading a source; recorded handoffs stay.'),
            ('gov_gap_replace', 'replaces open ranges as they were read, or fails with GH002'),
            ('gov_gap_cool', 'marks open ranges as cold that no transaction can still fill soon'),
            ('gov_stream_bind', 'binds a replication slot to its server'),
            ('gov_stream_confirm', 'records a position of an idle stream'),
            ('gov_frontier_advance', 'moves the frontier of a source'),
            ('gov_key_reused', 'notes keys that rows took from other rows; nothing new is recorded under such a key''s own identity'),
            ('gov_certificate_put', 'writes a certificate and counts its repairs'),
            ('gov_audit_gain', 'how much a count of an audit has grown since its last checkpoint'),
            ('gov_audit_summary', 'the summary of an audit after one more checkpoint'),
            ('gov_audit_checkpoint', 'records where an audit stands'),
            ('gov_audit_finish', 'records the end of an audit and its certificate'),
            ('gov_outbox_retire', 'Removes certified signals that are older than p_before, and remembers them; no audit emits them again.'),
            ('gov_pending_retire', 'Removes captures that were drained before p_before.'),
            ('gov_notices_retire', 'Removes old certificates, heartbeats and announced findings.'),
            ('gov_selftest_claim', 'lets one selftest run at a time'),
            ('gov_selftest_clean', 'Removes what a selftest left; it can reach nothing else.'),
            ('gov_config_number', 'a whole number of dot_config within bounds; a value that cannot be used raises config_invalid'),
            ('gov_config_interval', 'an interval of dot_config; a value that cannot be used raises config_invalid'),
            ('gov_retry_schedule', 'sets when a staged row is tried again'),
            ('gov_handoff_stage', 'stages a rejected row, before the reader moves past it'),
            ('gov_retry_again', 'counts that a staged row was rejected again'),
            ('gov_retry_done', 'takes a row out of the staging after its signals are recorded'),
            ('gov_dead_letter_watch', 'raises and resolves the finding about the number of open dead letters'),
            ('gov_dead_letter_put', 'makes a dead letter of a staged row'),
            ('gov_dead_letter_close', 'records a decision about a dead letter'),
            ('gov_dead_letter_resolve', 'Closes dead letters as discarded or superseded, with a reason; returns those that were open.'),
            ('gov_dead_letter_lease', 'Claims the lease of replays, gov_handoff_dlq, the only one that an operator may take.'),
            ('gov_dead_letter_replayed', 'Closes a dead letter as replayed; rejected unless its signals are recorded.'),
            ('gov_dead_letter_failed', 'Notes that a replay was rejected again.'),
            ('gov_trust_promote', 'Moves captures of producers that are trusted now to the retry lane.'),
            ('gov_trust_set', 'Grants or revokes trust in a producer of a source.'),
            ('gov_watermark_hold', 'the trigger that keeps the watermark of a cursor monotone'),
            ('gov_heartbeat_emit', 'emits the heartbeat of a worker, if its type is active'),
            ('gov_watch_cadence', 'the cadence of a worker; null: it is not watched'),
            ('gov_finding_orphans', 'resolves findings about sources that were removed'),
            ('fn_governance_watch', 'The watchdog: says which workers are silent, and raises and resolves findings. p_now is for tests and for looking back.'),
            ('fn_governance_route_worker_health', 'The health check of a worker: last run, age, backlog, open dead letters, lease. Counts go to 10,000.'),
            ('gov_captured', 'How many captures wait, by type, each counted to 10,000.'),
            ('gov_dirty_groups', 'How many groups are dirty, counted up to 10,000.'),
            ('gov_worker_pause', 'Pauses or resumes a worker; true: this changed something.'),
            ('gov_worker_page', 'the end of a page of work: the fence and the checkpoint'),
            ('gov_worker_summary', 'the summary of a run after one more page'),
            ('gov_worker_checkpoint', 'the checkpoint of the intake')
        ) as v (name, said)
    loop
        for f in
            select p.oid::regprocedure from pg_proc p
             where p.proname = c.name and p.pronamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace)
               and obj_description(p.oid, 'pg_proc') is null
        loop
            execute format('comment on function %s is %L', f, c.said);
        end loop;
    end loop;

    for c in
        select * from (values
            ('gov_handoff.batches', 'a lock without rows: shared by every gate that records, exclusive for types, trust, definitions and retention'),
            ('gov_handoff.definitions', 'a lock without rows: exclusive for a gate that changes a source'),
            ('gov_handoff.rehearsals', 'a lock without rows: exclusive for a selftest'),
            ('public.gov_audit_name', 'the names of what an audit counted, so that an audit that resumes names each once'),
            ('public.gov_certificate_log', 'the certificates of each source, the latest thousand'),
            ('public.gov_repair_total', 'repairs by source and reason since the beginning'),
            ('public.gov_retired_range', 'integer keys whose signals retention removed'),
            ('public.gov_retired_signal', 'other keys whose signals retention removed'),
            ('public.gov_retired_total', 'what the marks of retention amount to, by source; audits compare it with them'),
            ('public.gov_reused_key', 'keys that rows took from other rows'),
            ('public.gov_schema_version', 'the migrations that are applied'),
            ('public.gov_source_table', 'which table the name of a source stands for'),
            ('public.gov_source_version', 'which definition of a source is in force'),
            ('public.gov_stream_position', 'up to which position the rows of a replication slot are recorded'),
            ('public.gov_worker_control', 'which workers are paused, by whom and why'),
            ('public.gov_worker_frontier', 'the transaction id below which every row of a source is handed off'),
            ('public.gov_worker_gap', 'ids of a source that were never seen, as ranges'),
            ('public.gov_candidate_group', 'groups, their dirty marks, and what the last scan found'),
            ('public.gov_candidate_state', 'objects, their dirty marks, and what is known of them'),
            ('public.job_subscription', 'which executor may claim which jobs'),
            ('public.v_gov_worker', 'every worker of ours that has ever ticked, with its state'),
            ('public.v_governance_worker', 'one row for each worker whose name begins with gov_'),
            ('public.v_governance_source', 'the progress of each source'),
            ('public.v_governance_summary', 'one row: what waits, counted for each type to 10,000, and what is wrong'),
            ('public.v_governance_finding', 'every finding of gov-handoff, open and resolved'),
            ('public.v_governance_certificate', 'the latest certificate of each source'),
            ('public.v_governance_certificate_history', 'the latest thousand certificates of each source'),
            ('public.v_governance_repair', 'repairs since the beginning'),
            ('public.v_governance_stream', 'the position up to which the stream is recorded'),
            ('public.v_governance_captured', 'what waits in event_pending, by type, each counted to 10,000'),
            ('public.v_governance_retry', 'rejected rows that will be retried'),
            ('public.v_governance_dead_letter_open', 'open dead letters'),
            ('public.v_governance_group', 'groups and their dirty marks'),
            ('public.v_governance_candidate', 'objects and their dirty marks')
        ) as v (name, said)
         where to_regclass(v.name) is not null and obj_description(to_regclass(v.name), 'pg_class') is null
    loop
        execute format('comment on %s %s is %L',
            case (select k.relkind from pg_class k where k.oid = to_regclass(c.name)) when 'v' then 'view' else 'table' end, c.name, c.said);
    end loop;

    -- A column of ours means the same in every table.
    for c in
        select a.attrelid::regclass as tab, a.attname as col, v.said
          from (values
            ('accepted', 'members that the input gate accepted'), ('actor_ref', 'the actor, such as user:name or svc:name'),
            ('alive', 'its lease is held and fresh'), ('attempts', 'how often it was tried'), ('attempts_written', 'signals that were recorded'),
            ('beat', 'the latest heartbeat'), ('born_key', 'the key of the row that the object was born as'),
            ('cadence_ms', 'how often it ticks, in milliseconds'), ('candidate_key', 'the object'), ('candidate_verdict', 'the verdict about the object'),
            ('canonical_address', 'the address'), ('certificate', 'the certificate, as the text of this page describes it'),
            ('certified_at', 'when the latest certificate was taken'), ('certified_away', 'ids that left the open ranges without being seen'),
            ('certified_lsn', 'the position of the log at that time'), ('changed_at', 'when it was changed'), ('changed_by', 'who changed it'),
            ('changes', 'changes since the beginning'), ('checksum', 'of the file that was applied'), ('coalesce_key', 'what the finding is about; one row for each'),
            ('created_at', 'when the row was made'), ('dead_lettered', 'rows that became dead letters'), ('dead_letters', 'open dead letters'),
            ('delivery_lane', 'immediate or delayed'), ('detail', 'facts, never contents'), ('dims', 'the dimensions of the group'),
            ('dirtied_at', 'when it became dirty'), ('dirty', 'something changed since the last scan'), ('dirty_groups', 'groups that are dirty'),
            ('dirty_reason', 'the kind of the change that made it dirty'), ('durable_lsn', 'everything up to this position of the log is recorded'),
            ('effects', 'what the worker wrote'), ('enabled', 'whether it is in use'), ('event_domain', 'the domain'), ('event_id', 'the event'),
            ('event_severity', 'info, warning or critical'), ('event_stream', 'the stream'), ('event_subject_ref', 'the subject of the event, in that table'),
            ('event_subject_table', 'the table of the subject'), ('event_type', 'the type'), ('events_seen', 'rows that were read'),
            ('executor_id', 'the executor'), ('executor_kind', 'what the executor is'), ('failure_code', 'why it was rejected, as a word'),
            ('failure_detail', 'why it was rejected'), ('filenode', 'the file of the table'), ('first_failed_at', 'when it was rejected first'),
            ('first_seen_at', 'when it was noticed first'), ('frontier', 'the transaction id'), ('generation', 'grows with each mark'),
            ('group_key', 'the group'), ('hi', 'the last id of the range'), ('hot', 'probed by the fast passes'), ('hot_ranges', 'open ranges that are probed often'),
            ('id', 'its key'), ('id_column', 'the column of the key'), ('id_family', 'integer, uuid or text'), ('idempotency_key', 'what makes it unique'),
            ('input_checked_at', 'when the input gate looked at it'), ('input_quality_state', 'pending, ok or rejected'), ('input_reason', 'why it was rejected'),
            ('kind', 'the kind'), ('key_conflict', 'two rows were born as this object'), ('lag_ms', 'how far behind it is, in milliseconds'),
            ('last_error', 'the latest error'), ('last_failed_at', 'when it was rejected last'), ('last_occurred_at', 'the time of the latest change'),
            ('last_run_at', 'when it worked last'), ('last_run_summary', 'the checkpoint of the latest run'), ('last_seen_at', 'when it was noticed last'),
            ('last_tick_at', 'when it ticked last'), ('last_tick_status', 'ok or resigned'), ('last_watermark_id', 'the key of the newest row that was handed off'),
            ('last_watermark_ts', 'the time of the newest row that was handed off'), ('lease_owner', 'the instance that holds the lease'),
            ('lo', 'the first id of the range'), ('low', 'the highest position that retention removed'), ('max_parallel', 'how many jobs at once'),
            ('members', 'objects of the group'), ('metadata', 'the definition of the source'), ('mode', 'stream or poll'), ('mode_reason', 'why'),
            ('more', 'there may be more'), ('name', 'the name'), ('named', 'how a signal names its row, by kind'), ('next_attempt_at', 'when it is tried again'),
            ('notes', 'for people'), ('object_type', 'what the object is'), ('occurred_at', 'when it happened'), ('occurrence_count', 'how often it was noticed'),
            ('one', 'always true'), ('open_findings', 'findings that are open'), ('open_ranges', 'ranges of ids that were never seen'),
            ('opened_at', 'when the range was opened'), ('owner_ref', 'who is responsible'), ('pace_reason', 'why it goes slower'), ('paused', 'whether it is paused'),
            ('paused_at', 'since when it is paused'), ('paused_because', 'why it is paused'), ('paused_by', 'who paused it'), ('phase', 'seeding, reconciling or incremental'),
            ('pos', 'the position in the feed'), ('priority_floor', 'the lowest priority that it takes'), ('progress', 'what the worker says of its progress'),
            ('reason', 'why'), ('registered_at', 'when it was registered'), ('registered_by', 'who registered it'), ('rejected', 'members that the input gate rejected'),
            ('relation', 'the table, by its object id'), ('repaired', 'how many'), ('resolution', 'how it ended'), ('resolved_at', 'when it ended; null: open'),
            ('retired', 'members that were retired'), ('retrying', 'rows that are retried'), ('rows_seen', 'rows that were read'),
            ('ruleset_version', 'the version of the rules'), ('scanned_at', 'when it was scanned last'), ('scanned_group', 'the group in which it was counted last'),
            ('scanned_version', 'the version of the rules at that time'), ('severity', 'info, warning, high or critical'), ('slot_budget', 'how much log the slot may retain, in bytes'),
            ('slot_name', 'the replication slot'), ('slot_rate', 'how fast the log grows, in bytes a second'), ('source_key', 'the key of the source row'),
            ('source_name', 'the source'), ('source_system', 'the system that it came from'), ('sources', 'how many sources it reads'),
            ('stale_after', 'when it is to be scanned again'), ('state', 'running, paused, stopped or silent'), ('subscription_id', 'its key'),
            ('system_identifier', 'the server'), ('table_name', 'the table'), ('table_schema', 'its schema'), ('taken_at', 'when it was taken'),
            ('term', 'the term of the lease'), ('ticks_total', 'how often it ticked'), ('timeline', 'the timeline of the server'),
            ('ttl_ms', 'how long the lease lasts without a tick, in milliseconds'), ('updated_at', 'when the row was changed'), ('used', 'a row of it was handed off'),
            ('verdict', 'the verdict about the group'), ('verdict_rule', 'the rule that decided'), ('version', 'the version'), ('waiting', 'captures that wait'),
            ('worker_name', 'the worker'), ('created', 'the tables that the step created'), ('applied_at', 'when it was applied'),
            ('job_kind', 'the kind of job; null: all'), ('event_snapshot', 'the address of the row'), ('last_kind', 'the kind of the latest change'),
            ('recorded_at', 'when it was noted'), ('number', 'its number'), ('subject', 'the subject reference of the key'), ('depth', 'how deep the audit is'),
            ('n', 'its number'), ('key', 'the key'), ('group_ref', 'the group, as in event_delayed'), ('pieces', 'how many pieces wait'),
            ('first_at', 'when the first one was emitted'), ('last_at', 'when the latest one was emitted'), ('step', 'the step that decided, 0 to 6'),
            ('via', 'the group through which it is a recipient, or itself'), ('muted', 'its subscription is muted'),
            ('payload_classification', 'safe_metadata or restricted'), ('safe_payload', 'the payload, a signal and no content'),
            ('scope', 'which groups it concerns'), ('issue_kind', 'the kind of the issue'), ('done_at', 'when it was done'), ('done_by', 'who did it'),
            ('started_at', 'when it began'), ('marked', 'how many groups were marked')
          ) as v (col, said)
          join pg_attribute a on a.attname = v.col and a.attnum > 0 and not a.attisdropped
          join pg_class k on k.oid = a.attrelid and k.relkind in ('r', 'v')
         where k.relnamespace = 'public'::regnamespace and col_description(a.attrelid, a.attnum) is null
           and (k.relname ~ '^(gov_|v_gov|v_event_|v_health_|event_feed$|event_type_lane$)' or k.relname = 'job_subscription')
    loop
        execute format('comment on column %s.%I is %L', c.tab, c.col, c.said);
    end loop;
end
$$;
