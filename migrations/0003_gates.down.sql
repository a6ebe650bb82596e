-- Everything named gov_* that 0003 made; the loop keeps this file true when a gate changes its arguments.
do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'public'::regnamespace
           and p.proname = any (array['gov_handoff_identity', 'gov_finding_raise', 'gov_finding_resolve', 'gov_lease_claim',
               'gov_lease_renew', 'gov_lease_resign', 'gov_lease_fence', 'gov_watermark_ahead', 'gov_handoff_apply',
               'gov_handoff_apply_one', 'gov_handoff_mark_new',
               'gov_gap_replace', 'gov_gap_cool', 'gov_handoff_refuse', 'gov_type_set_active', 'gov_handoff_drain',
               'gov_source_put', 'gov_source_remove', 'gov_stream_bind', 'gov_stream_confirm', 'gov_frontier_advance',
               'gov_audit_note', 'gov_audit_write'])
    loop
        execute format('drop function %s', f);
    end loop;
end
$$;
