-- Schedules: jobs that are enqueued at times, by a cron expression in a zone or at an interval.
--
-- A schedule has due times. Which ones is decided by its timing alone (cron and zone, or interval and anchor), never by when
-- somebody looked. Each due time makes at most one job: the key of the job is made of the schedule's name and the due time, and
-- a key is one job for good. So it does not matter how many sessions tick, how often, or what they see of each other.
--
-- Decided about cron expressions:
--
--   fields       minute hour day-of-month month day-of-week. Lists, ranges, steps (`*/5`, `10-40/10`, `5/15`: from 5 on), names of
--                months and days in English. Sunday is 0 and 7. A range that runs backwards is refused, except one that ends at
--                Sunday.
--   both days    When neither day field begins with `*`, a day fits that fits either. Otherwise it has to fit both. This is
--                what cron has done since 1987.
--   gap          Local times that a zone leaves out (the clock is put forward) are due once, at the moment at which the gap ends.
--                Several of them are one due time.
--   fold         Local times that a zone has twice (the clock is put back) are due once, at the first of the two moments. So an
--                expression that is due every hour rests for the hour that comes again. Use an interval for a steady rhythm.
--
-- Decided about runs that were missed. When a tick finds several due times, or an old one:
--
--   coalesce     one job, for the latest due time.
--   skip         one job for the latest due time where it is younger than `job.schedule.grace_ms`; no job otherwise.
--   catch_up     a job for each due time, oldest first, but for the latest `catch_up_limit` due times only.
--
-- A pause is no outage: nothing is made up for it. A schedule whose timing is changed is settled first under its old timing; the new
-- one counts from that moment on.

create table public.queue_schedule (
    name           text        not null primary key,
    cron           text,
    every          interval,
    zone           text        not null default 'UTC',
    anchor         timestamptz not null default '1970-01-01 00:00:00+00',
    missed         text        not null default 'coalesce',
    catch_up_limit int         not null default 100,
    executor       text        not null,
    job_kind       text        not null,
    domain         text,
    priority       smallint    not null default 0,
    payload_ref    text,
    payload        jsonb       not null default '{}',
    deadline       interval,
    max_attempts   int,
    paused         boolean     not null default false,
    -- The first due time that is not decided yet. Null: there is none any more.
    next_run_at    timestamptz,
    last_run_at    timestamptz,
    -- A schedule that failed rests until then, so that it takes no place from the others.
    retry_at       timestamptz,
    last_error     text,
    changed_by     text        not null,
    changed_at     timestamptz not null default clock_timestamp(),
    constraint queue_schedule_name_word check (name ~ '^[^[:space:]]{1,200}$'),
    constraint queue_schedule_one_timing check ((cron is null) <> (every is null)),
    -- Months have no length. A schedule by months is a cron expression.
    constraint queue_schedule_every_whole check (extract(year from every) = 0 and extract(month from every) = 0
        and every between interval '1 second' and interval '366 days'),
    constraint queue_schedule_whole_seconds check (extract(microseconds from every)::bigint % 1000000 = 0
        and anchor = date_trunc('second', anchor)),
    constraint queue_schedule_missed_known check (missed in ('coalesce', 'skip', 'catch_up')),
    constraint queue_schedule_catch_up_bounded check (catch_up_limit between 1 and 1000),
    constraint queue_schedule_deadline_ahead check (deadline > interval '0'),
    constraint queue_schedule_attempts_some check (max_attempts between 1 and 1000),
    constraint queue_schedule_executor_known check (executor in
        ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
    constraint queue_schedule_signal_not_data check (not payload ?| '{body, content, raw, vector, embedding, secret, token, password, ssn, personal_data}')
);
comment on table public.queue_schedule is 'jobs that are enqueued at times: by a cron expression in a zone, or at an interval';
comment on column public.queue_schedule.name is 'the name of the schedule, part of the keys of its jobs';
comment on column public.queue_schedule.cron is 'minute hour day month weekday; null where it runs at an interval';
comment on column public.queue_schedule.every is 'the interval; null where it runs by a cron expression';
comment on column public.queue_schedule.zone is 'the zone of the cron expression';
comment on column public.queue_schedule.anchor is 'an interval counts from here';
comment on column public.queue_schedule.missed is 'what happens to runs that were missed: coalesce, skip or catch_up';
comment on column public.queue_schedule.catch_up_limit is 'how many missed runs are made up at most';
comment on column public.queue_schedule.executor is 'the kind of executor that the jobs are for';
comment on column public.queue_schedule.job_kind is 'the kind of the jobs';
comment on column public.queue_schedule.domain is 'the domain of the jobs';
comment on column public.queue_schedule.priority is 'the priority of the jobs';
comment on column public.queue_schedule.payload_ref is 'what the jobs are about, a reference';
comment on column public.queue_schedule.payload is 'the payload of the jobs, a signal and no content';
comment on column public.queue_schedule.deadline is 'how long after its due time a job has to have ended';
comment on column public.queue_schedule.max_attempts is 'how often a job is tried';
comment on column public.queue_schedule.paused is 'whether it is paused; what falls into a pause is not made up';
comment on column public.queue_schedule.next_run_at is 'the first due time that is not decided yet';
comment on column public.queue_schedule.last_run_at is 'the latest due time that made a job';
comment on column public.queue_schedule.retry_at is 'when it is looked at again after a failure';
comment on column public.queue_schedule.last_error is 'why the latest attempt to fire it failed';
comment on column public.queue_schedule.changed_by is 'who changed it';
comment on column public.queue_schedule.changed_at is 'when it was changed';
create index queue_schedule_next on public.queue_schedule (next_run_at) where not paused;

-- Cron expressions -------------------------------------------------------------------------------------------------

-- The values of one field, ascending. p_names: names of the values, from p_low on. The days of the week are 0 to 7; 7 comes out as 0.
create function gov_handoff.gov_cron_field(p_text text, p_field text, p_low int, p_high int, p_names text[] default '{}')
returns int[] language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_item text;
    v_part text[];
    v_from int;
    v_to int;
    v_values int[] := '{}';
begin
    foreach v_item in array string_to_array(p_text, ',') loop
        v_part := regexp_match(v_item, '^(\*|([0-9]{1,2}|[A-Za-z]{3})(?:-([0-9]{1,2}|[A-Za-z]{3}))?)(?:/([0-9]{1,2}))?$');
        if v_part is null then
            raise exception 'the % of a cron expression cannot be %', p_field, coalesce(nullif(left(v_item, 40), ''), 'empty')
                using errcode = 'GH003';
        end if;
        if v_part[1] = '*' then
            v_from := p_low;
            v_to := p_high;
        else
            v_from := gov_handoff.gov_cron_value(v_part[2], p_field, p_low, p_high, p_names);
            v_to := case when v_part[3] is not null then gov_handoff.gov_cron_value(v_part[3], p_field, p_low, p_high, p_names)
                         when v_part[4] is not null then p_high else v_from end;
            if p_field = 'day of the week' and v_part[3] is not null and v_to = 0 and v_from > 0 then
                v_to := 7;
            end if;
        end if;
        if v_to < v_from then
            raise exception 'the range % of the % runs backwards', v_item, p_field using errcode = 'GH003';
        elsif v_part[4]::int < 1 then
            raise exception 'the step of % must be at least 1', v_item using errcode = 'GH003';
        end if;
        v_values := v_values || array(select generate_series(v_from, v_to, coalesce(v_part[4]::int, 1)));
    end loop;
    if v_values = '{}' then
        raise exception 'the % of a cron expression is empty', p_field using errcode = 'GH003';
    end if;
    return array(select distinct case when p_field = 'day of the week' then u.v % 7 else u.v end from unnest(v_values) as u (v) order by 1);
end
$$;

-- A number or a name of a field.
create function gov_handoff.gov_cron_value(p_text text, p_field text, p_low int, p_high int, p_names text[])
returns int language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_value int;
begin
    v_value := case when p_text ~ '^[0-9]+$' then p_text::int else array_position(p_names, lower(p_text)) - 1 + p_low end;
    if v_value is null or v_value not between p_low and p_high then
        raise exception 'the % must be % to %, not %', p_field, p_low, p_high, p_text using errcode = 'GH003';
    end if;
    return v_value;
end
$$;

-- The moment of a local time in a zone: the first of two in a fold, the end of the gap in a gap.
create function gov_handoff.gov_local_moment(p_local timestamp, p_zone text)
returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    -- The server takes the later moment of a fold, and reads a time in a gap as if the clock had not been put forward.
    v_at timestamptz := p_local at time zone p_zone;
    v_jump interval := (v_at at time zone p_zone) - p_local;
    v_low timestamptz;
    v_half interval;
begin
    if v_jump > interval '0' then
        -- The gap ends after v_at less the jump, and at v_at at the latest. The zone changes on a whole second.
        v_low := v_at - v_jump;
        while v_at - v_low > interval '1 second' loop
            v_half := date_trunc('second', (v_at - v_low) / 2);
            if ((v_low + v_half) at time zone p_zone) - (v_low at time zone p_zone) > v_half then
                v_at := v_low + v_half;
            else
                v_low := v_low + v_half;
            end if;
        end loop;
        return v_at;
    end if;
    -- Four hours before is before any fold: no zone has put its clock back by more since 1970.
    v_jump := ((v_at - interval '4 hours') at time zone p_zone) - (p_local - interval '4 hours');
    if v_jump > interval '0' and ((v_at - v_jump) at time zone p_zone) = p_local then
        return v_at - v_jump;
    end if;
    return v_at;
end
$$;

-- Due times of a cron expression, at most p_count: forward the first ones after p_from, ascending; else the last ones that are not
-- after p_from, descending. None where the expression fits no day of the next 45 years, such as 30 February.
create function gov_handoff.gov_cron_times(p_cron text, p_zone text, p_from timestamptz, p_forward boolean, p_count int)
returns setof timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_fields text[] := regexp_split_to_array(btrim(p_cron), '\s+');
    v_minutes int[];
    v_hours int[];
    v_days int[];
    v_months int[];
    v_weekdays int[];
    v_both boolean;
    v_day_fits boolean;
    v_weekday_fits boolean;
    v_local timestamp := p_from at time zone p_zone;
    v_day date;
    v_end date;
    v_step int := case when p_forward then 1 else -1 end;
    v_hour int;
    v_minute int;
    v_at timestamptz;
    v_last timestamptz;
    v_left int := p_count;
begin
    if cardinality(v_fields) <> 5 then
        raise exception 'a cron expression has 5 fields (minute hour day month weekday), not %', cardinality(v_fields)
            using errcode = 'GH003';
    end if;
    v_minutes := gov_handoff.gov_cron_field(v_fields[1], 'minute', 0, 59);
    v_hours := gov_handoff.gov_cron_field(v_fields[2], 'hour', 0, 23);
    v_days := gov_handoff.gov_cron_field(v_fields[3], 'day of the month', 1, 31);
    v_months := gov_handoff.gov_cron_field(v_fields[4], 'month', 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
    v_weekdays := gov_handoff.gov_cron_field(v_fields[5], 'day of the week', 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
    v_both := v_fields[3] ~ '^\*' or v_fields[5] ~ '^\*';
    if not p_forward then
        v_minutes := array(select u.v from unnest(v_minutes) as u (v) order by u.v desc);
        v_hours := array(select u.v from unnest(v_hours) as u (v) order by u.v desc);
        -- In the second pass of a fold, later local times have had their moment already.
        v_local := greatest(v_local, ((p_from - interval '4 hours') at time zone p_zone) + interval '4 hours');
    end if;
    v_day := v_local::date;
    v_end := v_day + v_step * 16436;
    while (v_end - v_day) * v_step > 0 loop
        if not extract(month from v_day)::int = any (v_months) then
            v_day := case when p_forward then date_trunc('month', v_day::timestamp) + interval '1 month'
                          else date_trunc('month', v_day::timestamp) - interval '1 day' end;
            continue;
        end if;
        v_day_fits := extract(day from v_day)::int = any (v_days);
        v_weekday_fits := extract(dow from v_day)::int = any (v_weekdays);
        if v_day_fits and v_weekday_fits or not v_both and (v_day_fits or v_weekday_fits) then
            foreach v_hour in array v_hours loop
                -- Before the hour of p_from nothing is due any more.
                continue when v_day = v_local::date and (v_hour - extract(hour from v_local)::int) * v_step < 0;
                foreach v_minute in array v_minutes loop
                    v_at := gov_handoff.gov_local_moment(v_day + make_time(v_hour, v_minute, 0), p_zone);
                    continue when p_forward and v_at <= p_from or not p_forward and v_at > p_from or v_at = v_last;
                    return next v_at;
                    v_last := v_at;
                    v_left := v_left - 1;
                    if v_left <= 0 then
                        return;
                    end if;
                end loop;
            end loop;
        end if;
        v_day := v_day + v_step;
    end loop;
end
$$;

-- Due times of a schedule, as gov_cron_times gives them.
create function gov_handoff.gov_schedule_times(p_cron text, p_every interval, p_zone text, p_anchor timestamptz, p_from timestamptz,
                                               p_forward boolean, p_count int)
returns setof timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    -- A day of an interval is 24 hours.
    v_length numeric := extract(epoch from p_every);
    v_n numeric;
begin
    if p_cron is not null then
        return query select t.at from gov_handoff.gov_cron_times(p_cron, p_zone, p_from, p_forward, p_count) as t (at);
        return;
    end if;
    v_n := floor((extract(epoch from p_from) - extract(epoch from p_anchor)) / v_length);
    return query
        select p_anchor + ((v_n + case when p_forward then g.i else 1 - g.i end) * v_length)::double precision * interval '1 second'
          from generate_series(1, p_count) as g (i);
end
$$;

-- The first due time after a moment.
create function gov_handoff.gov_schedule_next(p_cron text, p_every interval, p_zone text, p_anchor timestamptz, p_after timestamptz)
returns timestamptz language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select t.at from gov_handoff.gov_schedule_times(p_cron, p_every, p_zone, p_anchor, p_after, true, 1) as t (at));
end
$$;

-- Firing -----------------------------------------------------------------------------------------------------------

-- Decides about the due times of one schedule up to p_now, at most p_limit of them, and enqueues their jobs. The caller holds
-- the row. Returns how many jobs.
create function gov_handoff.gov_schedule_fire(p_name text, p_now timestamptz, p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_it public.queue_schedule;
    v_due timestamptz[];
    v_next timestamptz;
    v_refused text;
begin
    select s.* into v_it from public.queue_schedule s where s.name = p_name;
    if v_it.paused or v_it.next_run_at is null or v_it.next_run_at > p_now then
        return 0;
    end if;
    -- The latest due times, newest first: as many as the policy can want, however long the outage was.
    v_due := array(
        select t.at from gov_handoff.gov_schedule_times(v_it.cron, v_it.every, v_it.zone, v_it.anchor, p_now, false,
                   case v_it.missed when 'catch_up' then v_it.catch_up_limit else 1 end) as t (at)
         where t.at >= v_it.next_run_at order by t.at);
    if v_it.missed = 'skip' then
        v_due := array(select u.at from unnest(v_due) as u (at) where u.at > p_now - gov_handoff.gov_schedule_grace());
    end if;
    if cardinality(v_due) > p_limit then
        v_due := v_due[1:p_limit];
        v_next := gov_handoff.gov_schedule_next(v_it.cron, v_it.every, v_it.zone, v_it.anchor, v_due[p_limit]);
    else
        v_next := gov_handoff.gov_schedule_next(v_it.cron, v_it.every, v_it.zone, v_it.anchor, p_now);
    end if;
    if v_due <> '{}' then
        select min(m.reason) into v_refused
          from gov_handoff.gov_job_enqueue((
                   select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('kind', v_it.job_kind, 'executor', v_it.executor,
                              'key', gov_handoff.gov_schedule_key(v_it.name, u.at), 'domain', v_it.domain, 'priority', v_it.priority,
                              'payload_ref', v_it.payload_ref, 'deadline_at', u.at + v_it.deadline, 'max_attempts', v_it.max_attempts,
                              'actor', 'schedule:' || v_it.name)) || jsonb_build_object('payload', v_it.payload) order by u.at)
                     from unnest(v_due) as u (at)), array[v_it.executor], true) m
         where m.outcome = 'refused';
        if v_refused is not null then
            raise exception 'a job of the schedule % was refused: %', p_name, v_refused using errcode = 'GH003';
        end if;
    end if;
    update public.queue_schedule s
       set next_run_at = v_next, last_run_at = coalesce(v_due[cardinality(v_due)], s.last_run_at), retry_at = null, last_error = null
     where s.name = p_name;
    return cardinality(v_due);
end
$$;

-- The key of the job of a due time. The identity of a run follows from the schedule and the due time alone.
create function gov_handoff.gov_schedule_key(p_name text, p_due timestamptz)
returns text language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return 'schedule:' || p_name || ':' || to_char(p_due at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
end
$$;

-- How late a run may be and still count as on time, for the policy `skip`.
create function gov_handoff.gov_schedule_grace()
returns interval language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce((select case when c.value ~ '^[0-9]{1,12}$' then c.value::bigint end from public.dot_config c
                      where c.key = 'job.schedule.grace_ms'), 60000) * interval '1 millisecond';
end
$$;

-- Fires what is due, at most p_limit jobs and schedules. A schedule that fails is a finding, rests for a minute, and holds up
-- no other. A schedule that another session works on is left to that session.
create function gov_handoff.gov_schedule_tick(p_now timestamptz, p_limit int)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_it record;
    v_fired bigint := 0;
    v_decided bigint := 0;
    v_n bigint;
begin
    for v_it in
        select s.name, s.last_error from public.queue_schedule s
         where not s.paused and s.next_run_at <= p_now and (s.retry_at is null or s.retry_at <= p_now)
         order by s.next_run_at limit p_limit for update skip locked
    loop
        exit when v_fired >= p_limit;
        begin
            v_n := gov_handoff.gov_schedule_fire(v_it.name, p_now, (p_limit - v_fired)::int);
            v_fired := v_fired + v_n;
            if v_it.last_error is not null then
                perform gov_handoff.gov_finding_resolve('schedule_failed:' || v_it.name, 'the schedule works again');
            end if;
        exception when others then
            update public.queue_schedule s set retry_at = p_now + interval '1 minute', last_error = left(sqlerrm, 500)
             where s.name = v_it.name;
            perform gov_handoff.gov_finding_sustain('schedule_failed', 'schedule_failed:' || v_it.name, 'high',
                jsonb_build_object('schedule', v_it.name, 'sqlstate', sqlstate), interval '1 minute');
        end;
        v_decided := v_decided + 1;
    end loop;
    return greatest(v_fired, v_decided);
end
$$;

-- Gates ------------------------------------------------------------------------------------------------------------

-- What is wrong with an item; null: nothing.
create function gov_handoff.gov_schedule_fault(p_item jsonb)
returns text language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_unknown text;
begin
    if jsonb_typeof(p_item) is distinct from 'object' then
        return 'expected an object, found ' || coalesce(jsonb_typeof(p_item), 'null');
    end if;
    select min(k.key) into v_unknown from jsonb_object_keys(p_item) as k (key)
     where k.key <> all ('{name, cron, every, zone, anchor, missed, catch_up_limit, executor, kind, job_kind, domain, priority, payload_ref,
        payload, deadline, max_attempts, paused, actor}');
    return case
        when v_unknown is not null then 'not a setting of a schedule: ' || left(v_unknown, 40)
        when coalesce(p_item ->> 'name', '') !~ '^[^[:space:]]{1,200}$' then 'a schedule needs a name of one word'
        when coalesce(btrim(coalesce(p_item ->> 'kind', p_item ->> 'job_kind')), '') = '' then 'a schedule needs a kind of job'
        when (p_item ->> 'cron' is null) = (p_item ->> 'every' is null) then 'a schedule has either cron or every'
        when coalesce(p_item ->> 'executor', '')
             <> all ('{DOT, Agent, Hermes, Codex, PG_worker, external_worker, future_Kestra_adapter}')
            then 'not a kind of executor: ' || coalesce(left(p_item ->> 'executor', 40), 'null')
        when coalesce(p_item ->> 'missed', 'coalesce') <> all ('{coalesce, skip, catch_up}')
            then 'missed must be coalesce, skip or catch_up'
        -- A short name can be an abbreviation, which stands for a fixed offset.
        when coalesce(p_item ->> 'zone', 'UTC') <> all ('{UTC, GMT}')
             and (p_item ->> 'zone' !~ '/' or p_item ->> 'zone' ~ '^(posix|right)/'
                  or not exists (select from pg_timezone_names z where z.name = p_item ->> 'zone'))
            then 'not a zone: ' || left(p_item ->> 'zone', 40) || '; expected a name such as Europe/Berlin, or UTC'
        when gov_handoff.gov_payload_violation(coalesce(p_item -> 'payload', '{}')) is not null
            then 'payload: ' || gov_handoff.gov_payload_violation(p_item -> 'payload')
    end;
end
$$;

-- Writes one schedule. The caller has asked gov_schedule_fault.
create function gov_handoff.gov_schedule_write(p_item jsonb, p_now timestamptz)
returns text language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_old public.queue_schedule;
    v_new public.queue_schedule;
begin
    -- Two that apply the same new name at once: the second one waits here, and finds a schedule that it may change.
    insert into public.queue_schedule (name, every, executor, job_kind, paused, changed_by, changed_at)
    values (p_item ->> 'name', interval '1 day', p_item ->> 'executor', '', true, '', '-infinity')
    on conflict do nothing;
    select s.* into v_old from public.queue_schedule s where s.name = p_item ->> 'name' for update;
    v_new := v_old;
    v_new.cron := p_item ->> 'cron';
    v_new.every := (p_item ->> 'every')::interval;
    v_new.zone := coalesce(p_item ->> 'zone', 'UTC');
    v_new.anchor := coalesce((p_item ->> 'anchor')::timestamptz, '1970-01-01 00:00:00+00');
    v_new.missed := coalesce(p_item ->> 'missed', 'coalesce');
    v_new.catch_up_limit := coalesce((p_item ->> 'catch_up_limit')::int, 100);
    v_new.executor := p_item ->> 'executor';
    v_new.job_kind := coalesce(p_item ->> 'kind', p_item ->> 'job_kind');
    v_new.domain := p_item ->> 'domain';
    v_new.priority := coalesce((p_item ->> 'priority')::smallint, 0);
    v_new.payload_ref := p_item ->> 'payload_ref';
    v_new.payload := coalesce(p_item -> 'payload', '{}');
    v_new.deadline := (p_item ->> 'deadline')::interval;
    v_new.max_attempts := (p_item ->> 'max_attempts')::int;
    -- A file that says nothing about a pause does not end one.
    v_new.paused := coalesce((p_item ->> 'paused')::boolean, v_old.paused and v_old.changed_at <> '-infinity');
    if v_new is not distinct from v_old then
        return 'unchanged';
    end if;
    if v_old.paused or (v_new.cron, v_new.every, v_new.zone, v_new.anchor) is distinct from (v_old.cron, v_old.every, v_old.zone, v_old.anchor) then
        perform gov_handoff.gov_schedule_fire(v_old.name, p_now, v_old.catch_up_limit);
        v_new.next_run_at := gov_handoff.gov_schedule_next(v_new.cron, v_new.every, v_new.zone, v_new.anchor, p_now);
        if v_new.next_run_at is null then
            raise exception 'the cron expression % is never due', v_new.cron using errcode = 'GH003';
        end if;
        select s.last_run_at into v_new.last_run_at from public.queue_schedule s where s.name = v_old.name;
    end if;
    update public.queue_schedule s
       set cron = v_new.cron, every = v_new.every, zone = v_new.zone, anchor = v_new.anchor, missed = v_new.missed,
           catch_up_limit = v_new.catch_up_limit, executor = v_new.executor, job_kind = v_new.job_kind, domain = v_new.domain,
           priority = v_new.priority, payload_ref = v_new.payload_ref, payload = v_new.payload, deadline = v_new.deadline,
           max_attempts = v_new.max_attempts, paused = v_new.paused, next_run_at = v_new.next_run_at, last_run_at = v_new.last_run_at,
           retry_at = null, changed_by = coalesce(nullif(btrim(p_item ->> 'actor'), ''), session_user::text), changed_at = p_now
     where s.name = v_new.name;
    return case when v_old.changed_at = '-infinity' then 'created' else 'changed' end;
end
$$;

-- The items of fn_schedule_apply, at a given time.
create function gov_handoff.gov_schedule_apply(p_schedules jsonb, p_now timestamptz)
returns table (name text, outcome text, reason text) language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_item jsonb;
begin
    for v_item in
        select j.item from jsonb_array_elements(case jsonb_typeof(p_schedules) when 'array' then p_schedules
                                                     else jsonb_build_array(p_schedules) end) as j (item)
    loop
        name := left(v_item ->> 'name', 200);
        reason := gov_handoff.gov_schedule_fault(v_item);
        outcome := 'refused';
        if reason is null then
            begin
                reason := gov_handoff.gov_schedule_write(v_item, p_now);
                outcome := 'done';
            -- What the item says cannot be used. Anything else is not the item's fault, and is raised.
            exception when sqlstate 'GH003' or check_violation or data_exception or not_null_violation then
                reason := sqlerrm;
            end;
        end if;
        return next;
    end loop;
end
$$;

-- Creates or changes schedules. An item is an object: name, cron or every, zone, anchor, missed, catch_up_limit, executor, kind, domain,
-- priority, payload_ref, payload, deadline (an interval after the due time), max_attempts, paused, actor. One answer for each
-- item: `done` (created, changed, unchanged) or `refused` and why.
create function public.fn_schedule_apply(p_schedules jsonb)
returns table (name text, outcome text, reason text) language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select a.name, a.outcome, a.reason from gov_handoff.gov_schedule_apply(p_schedules, clock_timestamp()) a;
end
$$;

-- A pause at a given time, see fn_schedule_pause.
create function gov_handoff.gov_schedule_pause(p_name text, p_paused boolean, p_actor text, p_now timestamptz)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.queue_schedule s
       set paused = p_paused, changed_by = coalesce(nullif(btrim(p_actor), ''), session_user::text), changed_at = p_now, retry_at = null,
           next_run_at = gov_handoff.gov_schedule_next(s.cron, s.every, s.zone, s.anchor, p_now)
     where s.name = p_name and s.paused <> p_paused;
    return found;
end
$$;

-- Pauses a schedule, or ends its pause. Runs that were owed at the pause, or that fell into it, are not made up. False: there is no such
-- schedule, or it was so already.
create function public.fn_schedule_pause(p_name text, p_paused boolean, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return gov_handoff.gov_schedule_pause(p_name, p_paused, p_actor, clock_timestamp());
end
$$;

create view public.v_queue_schedule as
select s.name, s.cron, s.every, s.zone, s.missed, s.executor, s.job_kind, s.domain, s.paused, s.next_run_at, s.last_run_at, s.last_error
  from public.queue_schedule s;
comment on view public.v_queue_schedule is 'the schedules: what they enqueue, when next, when last';

do $$
declare
    v record;
begin
    for v in
        select a.attname as col, col_description('public.queue_schedule'::regclass, s.attnum) as said
          from pg_attribute a join pg_attribute s on s.attrelid = 'public.queue_schedule'::regclass and s.attname = a.attname
         where a.attrelid = 'public.v_queue_schedule'::regclass and a.attnum > 0
    loop
        execute format('comment on column public.v_queue_schedule.%I is %L', v.col, v.said);
    end loop;
end
$$;
comment on function gov_handoff.gov_cron_field(text, text, int, int, text[]) is 'the values of one field of a cron expression';
comment on function gov_handoff.gov_cron_value(text, text, int, int, text[]) is 'a number or a name in a cron expression';
comment on function gov_handoff.gov_cron_times(text, text, timestamptz, boolean, int) is 'due times of a cron expression in a zone, after a moment or up to it';
comment on function gov_handoff.gov_local_moment(timestamp, text) is 'the moment of a local time: the first of a fold, the end of a gap';
comment on function gov_handoff.gov_schedule_times(text, interval, text, timestamptz, timestamptz, boolean, int) is 'due times of a schedule';
comment on function gov_handoff.gov_schedule_next(text, interval, text, timestamptz, timestamptz) is 'the first due time after a moment';
comment on function gov_handoff.gov_schedule_fire(text, timestamptz, int) is 'decides about the due times of one schedule and enqueues their jobs';
comment on function gov_handoff.gov_schedule_key(text, timestamptz) is 'the key of the job of a due time';
comment on function gov_handoff.gov_schedule_grace() is 'how late a run may be and still count as on time';
comment on function gov_handoff.gov_schedule_tick(timestamptz, int) is 'fires what is due, bounded';
comment on function gov_handoff.gov_schedule_fault(jsonb) is 'why an item cannot be a schedule; null: it can';
comment on function gov_handoff.gov_schedule_write(jsonb, timestamptz) is 'writes one schedule';
comment on function gov_handoff.gov_schedule_apply(jsonb, timestamptz) is 'creates or changes schedules at a given time';
comment on function gov_handoff.gov_schedule_pause(text, boolean, text, timestamptz) is 'pauses a schedule at a given time';
comment on function public.fn_schedule_apply(jsonb) is 'creates or changes schedules; one answer for each item';
comment on function public.fn_schedule_pause(text, boolean, text) is 'pauses a schedule, or ends its pause';

do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'gov_handoff'::regnamespace and p.proname ~ '^gov_(schedule_|cron_|local_moment$)'
            or p.pronamespace = 'public'::regnamespace and p.proname ~ '^fn_schedule_'
    loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
grant execute on function public.fn_schedule_apply(jsonb), public.fn_schedule_pause(text, boolean, text) to gov_handoff_operator;
grant select, insert, update on public.queue_schedule to gov_handoff_owner;
grant select on public.v_queue_schedule to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
insert into public.event_type_registry (event_domain, event_type, event_stream, active)
select 'governance', 'governance.finding.schedule_failed', 'alert', false
 where not exists (select from public.event_type_registry r
                    where r.event_domain = 'governance' and r.event_type = 'governance.finding.schedule_failed');
insert into public.dot_config (key, value)
select 'job.schedule.grace_ms', '60000' where not exists (select from public.dot_config where key = 'job.schedule.grace_ms');
