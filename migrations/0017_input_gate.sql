-- The input gate: whether the source row behind a candidate is fit to be judged.

-- The checks. An operator switches each on or off; the candidates are checked again then.
create table public.gov_input_check (
    code        text        not null primary key,
    description text        not null,
    enabled     boolean     not null default true,
    changed_by  text        not null default 'gov-handoff',
    changed_at  timestamptz not null default clock_timestamp(),
    constraint gov_input_check_known check (code = any ('{source_row_missing, address_missing, key_not_unique, provenance_untrusted}'))
);
comment on table public.gov_input_check is 'the checks of the input gate; each can be switched off';
insert into public.gov_input_check (code, description)
values ('source_row_missing', 'the source row of the latest change is there'),
       ('address_missing', 'the source row still gives the address of the candidate'),
       ('key_not_unique', 'the candidate was born once'),
       ('provenance_untrusted', 'the source trusts the producer of the row');

-- Candidates of a source that are to be checked again, because something changed that the checks depend on: trust, the
-- definition, or which checks are on. The gate walks over the candidates in the order of their keys, up to `reached` so far.
-- Until then each keeps what the last check found.
create table public.gov_input_recheck (
    id          bigint      generated always as identity primary key,
    source_name text        not null,
    reason      text        not null,
    reached     text        not null default '',
    created_at  timestamptz not null default clock_timestamp(),
    done_at     timestamptz
);
comment on table public.gov_input_recheck is 'walks of the input gate over the candidates of a source, each with its place';
create index gov_input_recheck_open on public.gov_input_recheck (id) where done_at is null;
-- For the findings: whether a source has rejected candidates of a reason. Rejections are few.
create index gov_candidate_state_rejected on public.gov_candidate_state (source_name, input_reason)
    where input_quality_state = 'rejected';

-- Notes that the candidates of a source are to be checked again. A walk that has not begun stands for the new one as well.
create function gov_handoff.gov_input_recheck_note(p_source text, p_reason text)
returns void language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into public.gov_input_recheck (source_name, reason)
    select p_source, p_reason
     where not exists (select from public.gov_input_recheck r
                        where r.done_at is null and r.source_name = p_source and r.reached = '')
$$;

-- Every change of a definition or of its list of producers ends in a new version of the source.
create function gov_handoff.gov_input_definition_changed()
returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform gov_handoff.gov_input_recheck_note(new.source_name, 'definition');
    return null;
end
$$;
create trigger gov_input_definition_changed after update of version on public.gov_source_version
    for each row when (old.version is distinct from new.version and new.worker_name <> 'gov_handoff_selftest') execute function gov_handoff.gov_input_definition_changed();

create function gov_handoff.gov_input_check_set(p_code text, p_enabled boolean, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.gov_input_check c
       set enabled = p_enabled, changed_by = coalesce(nullif(btrim(p_actor), ''), session_user), changed_at = clock_timestamp()
     where c.code = p_code and c.enabled <> p_enabled;
    if not found then
        if not exists (select from public.gov_input_check c where c.code = p_code) then
            raise exception 'no input check is called %', p_code using errcode = 'GH003',
                hint = 'gov-handoff checks list shows the checks';
        end if;
        return false;
    end if;
    perform gov_handoff.gov_input_recheck_note(c.source_name, 'check ' || p_code)
       from public.gov_worker_cursor c where c.metadata ? 'id';
    return true;
end
$$;

-- One page of the gate. o_*: the candidates, with what the client read of them and what it found; o_reason null is `ok`.
-- r_id, r_to, r_done: the walk that the page belongs to, and how far it comes.
--
-- A candidate that another change reached in the meantime, so that another row or birth stands behind it, is pending, and
-- is looked at again. A finding that is new marks the candidate and its group, as a change does: groups first, each by key.
create function gov_handoff.gov_input_put(
    p_worker text, p_owner text, p_term bigint,
    o_key text[], o_source text[], o_source_key text[], o_conflict boolean[], o_reason text[],
    r_id bigint, r_to text, r_done boolean, p_begins boolean, p_ends boolean)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_news text[];
    v_groups text[];
    v_generation jsonb;
    v_changed bigint := 0;
    v_finding record;
begin
    execute $q$
        select array_agg(c.candidate_key), array_agg(distinct c.group_key)
          from unnest($1, $2, $3, $4, $5) as u (key, source, source_key, conflict, reason)
          join public.gov_candidate_state c on c.candidate_key = u.key
         where c.source_name is distinct from u.source or c.source_key is distinct from u.source_key
            or c.key_conflict <> u.conflict
            or c.input_quality_state <> case when u.reason is null then 'ok' else 'rejected' end
            or c.input_reason is distinct from u.reason
    $q$ into v_news, v_groups using o_key, o_source, o_source_key, o_conflict, o_reason;

    if v_news is not null then
        with locked as (
            select g.group_key from public.gov_candidate_group g where g.group_key = any (v_groups)
             order by g.group_key collate "C" for no key update
        ), touched as (
            update public.gov_candidate_group g
               set dirty = true, dirty_reason = 'input', dirtied_at = now(), generation = g.generation + 1
              from locked l where g.group_key = l.group_key
            returning g.group_key, g.generation
        )
        select jsonb_object_agg(t.group_key, t.generation) into v_generation from touched t;

        execute $q$
            with locked as materialized (
                select c.candidate_key from public.gov_candidate_state c where c.candidate_key = any ($6)
                 order by c.candidate_key collate "C" for no key update
            )
            update public.gov_candidate_state c
               set input_quality_state = f.state, input_reason = f.reason, input_checked_at = clock_timestamp(),
                   dirty = true, dirty_reason = 'input', dirtied_at = now(), generation = c.generation + 1,
                   group_mark = coalesce(($7 ->> c.group_key)::bigint, 9223372036854775807)
              from (select k.candidate_key, w.state, case w.state when 'rejected' then u.reason end as reason
                      from unnest($1, $2, $3, $4, $5) as u (key, source, source_key, conflict, reason)
                      join locked l on l.candidate_key = u.key
                      join public.gov_candidate_state k on k.candidate_key = u.key
                     cross join lateral (select case when k.source_name is distinct from u.source
                                                       or k.source_key is distinct from u.source_key
                                                       or k.key_conflict <> u.conflict then 'pending'
                                                     when u.reason is null then 'ok' else 'rejected' end as state) w) f
             where c.candidate_key = f.candidate_key
        $q$ using o_key, o_source, o_source_key, o_conflict, o_reason, v_news, v_generation;
        get diagnostics v_changed = row_count;
    end if;
    if r_id is not null then
        update public.gov_input_recheck r
           set reached = coalesce(r_to, r.reached), done_at = case when r_done then clock_timestamp() end
         where r.id = r_id;
        if r_done then
            delete from public.gov_input_recheck r where r.done_at is not null and r.id < r_id - 1000;
        end if;
    end if;

    -- One finding for each reason and source; it ends when no such candidate is left.
    for v_finding in
        select s.source, k.code, exists (select from public.gov_candidate_state c
                                          where c.source_name = s.source and c.input_reason = k.code
                                            and c.input_quality_state = 'rejected') as there,
               exists (select from public.system_issues i where i.coalesce_key = 'input_rejected:' || k.code || ':' || s.source
                          and i.resolved_at is null) as open
          from (select distinct u.source from unnest(o_source) as u (source) where u.source is not null) s
         cross join public.gov_input_check k
    loop
        if v_finding.there and not v_finding.open then
            perform gov_handoff.gov_finding_raise('input_rejected', 'input_rejected:' || v_finding.code || ':' || v_finding.source,
                'warning', jsonb_build_object('source', v_finding.source, 'reason', v_finding.code), true);
        elsif v_finding.open and not v_finding.there then
            perform gov_handoff.gov_finding_resolve('input_rejected:' || v_finding.code || ':' || v_finding.source, 'none is left');
        end if;
    end loop;
    perform gov_handoff.gov_worker_page(p_worker, p_owner, p_term, 'candidates', coalesce(cardinality(o_key), 0), v_changed, 0, p_begins, p_ends);
    return v_changed;
end
$$;

do $$
declare
    f regprocedure;
begin
    foreach f in array array(select p.oid::regprocedure from pg_proc p where p.pronamespace = 'gov_handoff'::regnamespace
                                and p.proname like 'gov\_input\_%') loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant select, insert, update, delete on public.gov_input_check, public.gov_input_recheck to gov_handoff_owner;
grant execute on function gov_handoff.gov_input_put to gov_handoff_worker;
grant execute on function gov_handoff.gov_input_check_set to gov_handoff_operator;
grant select on public.gov_input_check, public.gov_input_recheck to gov_handoff_worker, gov_handoff_operator;
comment on function gov_handoff.gov_input_recheck_note is 'notes that the candidates of a source are to be checked again';
comment on function gov_handoff.gov_input_definition_changed is 'a new version of a source: its candidates are checked again';
comment on function gov_handoff.gov_input_check_set is 'switches a check of the input gate on or off';
comment on function gov_handoff.gov_input_put is 'records one page of what the input gate found';
