-- One example call of each function that other programs may call. docs/sql.md shows them, and tests/sql_reference.rs runs
-- them, each in a transaction that is rolled back, with an event, a job and an executor of these ids at hand.
--@ fn_event_emit
select fn_event_emit(p_domain => 'iu', p_type => 'draft_created', p_subject_table => 'unit_edit_draft',
    p_subject_ref => '7e57ed00-0000-4000-8000-000000000009', p_address => 'iu://draft/9', p_actor => 'user:huyen', p_source_system => 'editor');
--@ fn_event_emit_many
select * from fn_event_emit_many('[{"domain": "iu", "type": "draft_created", "address": "iu://draft/9", "actor": "user:huyen",
    "source_system": "editor", "payload": {"words": 120}}]');
--@ fn_event_feed
select pos, event_id, event_type from fn_event_feed(p_after => 0, p_limit => 100, p_domain => 'iu');
--@ fn_event_feed_head
select low, last from fn_event_feed_head();
--@ fn_event_unread
select pos, event_id, event_type from fn_event_unread('user:huyen', p_domain => 'iu', p_limit => 20);
--@ fn_event_unread_count
select event_domain, event_stream, unread, more from fn_event_unread_count('user:huyen');
--@ fn_event_mark_read
select fn_event_mark_read('user:huyen', array['7e57ed00-0000-4000-8000-000000000001']::uuid[]);
--@ fn_event_mark_unread
select fn_event_mark_unread('user:huyen', array['7e57ed00-0000-4000-8000-000000000001']::uuid[]);
--@ fn_event_mark_all_read
select fn_event_mark_all_read('user:huyen', p_domain => 'iu');
--@ fn_event_ack
select fn_event_ack('user:huyen', '7e57ed00-0000-4000-8000-000000000001', 'taken care of');
--@ fn_event_board
select pos, event_type, state from fn_event_board('user:huyen', p_severity => 'critical', p_limit => 20);
--@ fn_event_recipients
select actor_ref, step_name, via from fn_event_recipients('7e57ed00-0000-4000-8000-000000000001');
--@ fn_event_consume_once
select fn_event_consume_once('mailer', '7e57ed00-0000-4000-8000-000000000001');
--@ fn_event_worker_tick
select gate, done, more from fn_event_worker_tick();
--@ fn_governance_watch
select worker_name, verdict, silent_seconds from fn_governance_watch();
--@ fn_governance_route_worker_health
select fn_governance_route_worker_health('gov_handoff_intake');
--@ fn_queue_route_worker_health
select fn_queue_route_worker_health();
--@ fn_executor_register
select fn_executor_register('hermes_batch_b', 'Hermes', 'user:huyen');
--@ fn_executor_heartbeat
select fn_executor_heartbeat('hermes_batch_a');
--@ fn_executor_disable
select fn_executor_disable('hermes_batch_a', 'user:huyen');
--@ fn_job_subscribe
select fn_job_subscribe('hermes_batch_a', p_job_kind => 'verify_mark', p_domain => 'iu', p_max_parallel => 4, p_actor => 'user:huyen');
--@ fn_job_producer_grant
select fn_job_producer_grant('gov_handoff_producer', 'Hermes', true, 'user:huyen');
--@ fn_job_enqueue
select fn_job_enqueue('verify_mark', 'verify:draft-10', 'Hermes', p_domain => 'iu', p_payload_ref => 'iu://draft/10', p_actor => 'user:huyen');
--@ fn_job_may_enqueue
select fn_job_may_enqueue('Hermes');

--@ fn_job_enqueue_many
select * from fn_job_enqueue_many('[{"kind": "verify_mark", "key": "verify:draft-11", "executor": "Hermes", "domain": "iu", "actor": "user:huyen"}]');
--@ fn_job_claim
select job_id, token, job_kind, payload_ref from fn_job_claim('hermes_batch_a', 10, interval '30 seconds');
--@ fn_job_start
select job_id, outcome from fn_job_start(array['7e57ed00-0000-4000-8000-000000000002']::uuid[], array[1]::bigint[]);
--@ fn_job_heartbeat
select job_id, outcome from fn_job_heartbeat('hermes_batch_a', array['7e57ed00-0000-4000-8000-000000000002']::uuid[], array[1]::bigint[]);
--@ fn_job_complete
select job_id, outcome from fn_job_complete(array['7e57ed00-0000-4000-8000-000000000002']::uuid[], array[1]::bigint[], '{"run": "dot-run-7"}');
--@ fn_job_fail
select job_id, outcome from fn_job_fail('7e57ed00-0000-4000-8000-000000000002', 1, 'the mailbox was busy');
--@ fn_job_release
select job_id, outcome from fn_job_release(array['7e57ed00-0000-4000-8000-000000000002']::uuid[], array[1]::bigint[]);
--@ fn_job_cancel
select job_id, outcome from fn_job_cancel('7e57ed00-0000-4000-8000-000000000002', 'no longer needed', 'user:huyen');
--@ fn_job_supersede
select job_id, outcome from fn_job_supersede('7e57ed00-0000-4000-8000-000000000002', '7e57ed00-0000-4000-8000-000000000003', 'user:huyen');
--@ fn_job_redrive
select job_id, outcome from fn_job_redrive(array['7e57ed00-0000-4000-8000-000000000002']::uuid[], 'user:huyen');
--@ fn_job_clean
select fn_job_clean(now() - interval '30 days', 1000);
--@ fn_mot_graph_emit
select job_id, outcome, reason from fn_mot_graph_emit('[{"kind": "measure", "key": "graph-1:measure", "executor": "DOT"},
    {"kind": "report", "key": "graph-1:report", "executor": "Hermes", "depends_on": ["graph-1:measure"]}]');
--@ fn_schedule_apply
select name, outcome, reason from fn_schedule_apply('[{"name": "nightly-marks", "cron": "30 2 * * *", "zone": "Asia/Ho_Chi_Minh",
    "missed": "coalesce", "executor": "Hermes", "kind": "verify_mark", "actor": "user:huyen"}]');
--@ fn_schedule_pause
select fn_schedule_pause('nightly-marks', true, 'user:huyen');
--@ gov_captured
select event_type, waiting, more from gov_handoff.gov_captured();
--@ gov_dirty_groups
select gov_handoff.gov_dirty_groups();
--@ gov_event_resolution
select actor_ref, step, via, muted from gov_handoff.gov_event_resolution('7e57ed00-0000-4000-8000-000000000001');
--@ gov_handoff_identity
select gov_handoff.gov_handoff_identity('birth_registry', 'int4', '42', 'governance.handoff.object_born');
--@ gov_handoff_probe
select gov_handoff.gov_handoff_probe();
--@ gov_finding_raise
select gov_handoff.gov_finding_raise('handoff_lag', 'handoff_lag:drill', 'warning', '{"drill": true}');
--@ gov_finding_resolve
select gov_handoff.gov_finding_resolve('handoff_lag:drill', 'the drill is over');
--@ gov_type_set_active
select gov_handoff.gov_type_set_active('governance.handoff.object_born', true);
--@ gov_type_set_lane
select gov_handoff.gov_type_set_lane('iu', 'draft_created', 'delayed');
--@ gov_actor_bind
select gov_handoff.gov_actor_bind('user:huyen', current_user);
--@ gov_member_set
select gov_handoff.gov_member_set('role:reviewer', 'agent:codex', true, 'user:huyen');
--@ gov_subscription_apply
select what, subject, change from gov_handoff.gov_subscription_apply(p_subscriptions => '[{"recipient_ref": "role:reviewer", "event_domain": "iu"}]',
    p_members => '[]', p_prune => false, p_dry_run => true, p_actor => 'user:huyen');
--@ gov_subscription_enabled
select gov_handoff.gov_subscription_enabled();
--@ gov_subscription_step
select gov_handoff.gov_subscription_step(p_domain => 'iu', p_type => null, p_stream => null, p_event_domain => 'iu',
    p_event_type => 'draft_created', p_event_stream => 'review');
--@ gov_worker_pause
select gov_handoff.gov_worker_pause(p_worker => 'gov_candidate_scan', p_paused => true, p_actor => 'user:huyen', p_reason => 'month end');
--@ gov_source_remove
select gov_handoff.gov_source_remove('gov_handoff_intake', 'pivot_definitions');
--@ gov_dead_letter_resolve
select gov_handoff.gov_dead_letter_resolve(p_ids => '{}', p_resolution => 'discarded', p_reason => 'a test row', p_actor => 'user:huyen');
--@ gov_dead_letter_lease
select held, term from gov_handoff.gov_dead_letter_lease('user:huyen', interval '20 seconds');
--@ gov_outbox_retire
select gov_handoff.gov_outbox_retire('gov_handoff_intake', now() - interval '1 year', 1000);
--@ gov_pending_retire
select gov_handoff.gov_pending_retire(now() - interval '1 year', 1000);
--@ gov_notices_retire
select gov_handoff.gov_notices_retire(now() - interval '1 year', 1000);
--@ gov_selftest_claim
select gov_handoff.gov_selftest_claim();
--@ gov_selftest_clean
select gov_handoff.gov_selftest_clean();
--@ gov_job_tick
select gov_handoff.gov_job_tick();
--@ gov_input_check_set
select gov_handoff.gov_input_check_set('provenance_untrusted', false, 'user:huyen');
--@ gov_rules_put
select version, changed from gov_handoff.gov_rules_put('[{"code": "crowd", "grain": "group", "priority": 5, "verdict": "crowded", "enabled": true,
    "tests": [{"fact": "members", "at_least": 100}]}]', 'user:huyen');
--@ gov_ruleset_version
select gov_handoff.gov_ruleset_version();
--@ gov_scan_shard
select gov_handoff.gov_scan_shard('object_class=person/source_registry=birth_registry', 4);
--@ gov_backlog_begin
select gov_handoff.gov_backlog_begin('birth_registry');
--@ gov_backlog_stage
select gov_handoff.gov_backlog_stage(gov_handoff.gov_backlog_begin('birth_registry'), '{1}', '{100}', array[now()], '{}');
--@ gov_backlog_forget
select gov_handoff.gov_backlog_forget(gov_handoff.gov_backlog_begin('birth_registry'));
