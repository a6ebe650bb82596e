-- The periodic full audit: which source is due, and candidates that are past their time.

-- When each source was last compared in full, and how that ended. Bounded: one row for each source. `counts_from` is what
-- the next audit's date is counted from: the beginning of the last one, or the registration of the source.
create view public.v_gov_full_audit as
select s.worker_name as intake, s.source_name, (f.last ->> 'started_at')::timestamptz as started_at,
       (f.last ->> 'ended_at')::timestamptz as ended_at, (f.last ->> 'rows')::bigint as rows_checked,
       (f.last ->> 'missing')::bigint as missing, (f.last ->> 'repaired')::bigint as repaired,
       (f.last ->> 'doubled')::bigint as doubled, (f.last ->> 'orphans')::bigint as orphans,
       coalesce((f.last ->> 'started_at')::timestamptz, s.created_at) as counts_from,
       coalesce(a.last_run_summary #>> '{audit,finished}' = 'false', false) as unfinished,
       (a.last_run_summary #>> '{audit,rows}')::bigint as rows_so_far
  from public.gov_worker_cursor s
  left join public.gov_worker_cursor a on a.worker_name = 'gov_periodic_full_audit' and a.source_name = s.source_name
 cross join lateral (select a.last_run_summary -> 'full_audit' as last) f
 where s.metadata ? 'id';
comment on view public.v_gov_full_audit is 'when each source was last compared in full with its signals, and what was found';

-- Has candidates that are past their time checked again, up to p_limit at a time: those whose verdict is stale, and those
-- whose input was checked longer than p_every ago. They wait for the input gate again, which looks at their source row;
-- nothing else about them changes. A walk goes through all candidates in the order of their keys. Its place is in the
-- cursor's summary, in the same commit as the page.
--
-- A candidate that another worker holds at this moment is skipped: it is being checked or judged, or marked and so dirty.
--
-- `examined`: candidates of this page. `due_at`: when the next walk begins, if no page is left of this one.
create function gov_handoff.gov_candidates_revalidate(p_worker text, p_owner text, p_term bigint, p_every interval, p_limit int)
returns table (examined bigint, marked bigint, due_at timestamptz) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := clock_timestamp();
    v_walk jsonb := (select c.last_run_summary -> 'walk' from public.gov_worker_cursor c
                      where c.worker_name = p_worker and c.source_name = 'gov_candidate_state');
    v_begins boolean := v_walk is null or v_walk ->> 'after' is null;
    v_last text;
begin
    if v_begins and (v_walk ->> 'started_at')::timestamptz + p_every > v_now then
        return query select 0::bigint, 0::bigint, (v_walk ->> 'started_at')::timestamptz + p_every;
        return;
    end if;
    if v_begins then
        v_walk := jsonb_build_object('started_at', v_now);
    end if;
    select count(*), max(k.candidate_key) into examined, v_last
      from (select s.candidate_key from public.gov_candidate_state s
             where s.candidate_key > coalesce(v_walk ->> 'after', '')
             order by s.candidate_key limit p_limit) k;
    with past as (
        select s.ctid from public.gov_candidate_state s
         where s.candidate_key > coalesce(v_walk ->> 'after', '') and s.candidate_key <= v_last
           and s.input_quality_state <> 'pending'
           and (s.stale_after <= v_now or s.input_checked_at <= v_now - p_every)
         order by s.candidate_key
           for no key update skip locked)
    update public.gov_candidate_state s set input_quality_state = 'pending', input_reason = null
      from past where s.ctid = past.ctid;
    get diagnostics marked = row_count;
    due_at := case when examined < p_limit then (v_walk ->> 'started_at')::timestamptz + p_every end;
    perform gov_handoff.gov_worker_page(p_worker => p_worker, p_owner => p_owner, p_term => p_term,
        p_source => 'gov_candidate_state', p_rows => examined, p_marked => marked, p_dlq => 0, p_begins => v_begins,
        p_ends => due_at is not null);
    update public.gov_worker_cursor c
       set last_run_summary = c.last_run_summary || jsonb_build_object('walk', v_walk
               || jsonb_build_object('after', case when due_at is null then v_last end))
     where c.worker_name = p_worker and c.source_name = 'gov_candidate_state';
    return next;
end
$$;
comment on function gov_handoff.gov_candidates_revalidate(text, text, bigint, interval, int) is
    'sends candidates past their time back to the input gate, one page of a walk at a time';

do $$
declare
    f regprocedure := 'gov_handoff.gov_candidates_revalidate(text,text,bigint,interval,int)';
begin
    execute format('alter function %s owner to gov_handoff_owner', f);
    execute format('revoke all on function %s from public', f);
end
$$;
grant execute on function gov_handoff.gov_candidates_revalidate(text, text, bigint, interval, int) to gov_handoff_worker;
grant select on public.v_gov_full_audit to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
