-- Who an event is for: six steps over event_subscription, membership of roles and agencies, mute, scope, broadcast.
--
-- event_subscription may be a live table and is read as it is. Everything else here is ours.

-- Who belongs to which role or agency. A group may be a member of another group.
create table public.event_actor_member (
    group_ref  text        not null,
    member_ref text        not null,
    added_by   text        not null,
    added_at   timestamptz not null default clock_timestamp(),
    primary key (group_ref, member_ref),
    constraint event_actor_member_group_known check (group_ref ~ '^(role|agency):[^[:space:]]+$'),
    constraint event_actor_member_member_known check (member_ref ~ '^(user|agency|role|agent|svc):[^[:space:]]+$'),
    constraint event_actor_member_not_itself check (group_ref <> member_ref)
);
create index event_actor_member_of on public.event_actor_member (member_ref, group_ref);
comment on table public.event_actor_member is 'who is a member of which role or agency; changed by gov_member_set and gov_subscription_apply';
comment on column public.event_actor_member.group_ref is 'the role: or agency: reference';
comment on column public.event_actor_member.member_ref is 'the member: a user:, agent:, svc:, role: or agency: reference';
comment on column public.event_actor_member.added_by is 'the operator who added the member';
comment on column public.event_actor_member.added_at is 'when the member was added';

-- Actors that are known because they read events here, although no subscription and no membership names them. A
-- broadcast reaches them.
create table public.event_actor (
    actor_ref   text        not null primary key,
    known_since timestamptz not null default clock_timestamp(),
    -- The role that may read and acknowledge for this actor. Null: every role that may call the functions for consumers.
    role_name   name,
    constraint event_actor_named check (btrim(actor_ref) <> '')
);
comment on table public.event_actor is 'actors that keep a read state here; a broadcast reaches them as well';
comment on column public.event_actor.actor_ref is 'the actor';
comment on column public.event_actor.known_since is 'when the actor first marked or acknowledged an event';
comment on column public.event_actor.role_name is 'the database role that may read and acknowledge for this actor; null: every consumer';

-- Recipients that an event names itself. An escalation has some; other events have none.
create table public.event_addressee (
    event_id      uuid not null,
    recipient_ref text not null,
    primary key (event_id, recipient_ref),
    constraint event_addressee_named check (btrim(recipient_ref) <> '')
);
comment on table public.event_addressee is 'recipients that an event names itself, whatever the subscriptions say; written by escalations';
comment on column public.event_addressee.event_id is 'the event';
comment on column public.event_addressee.recipient_ref is 'the recipient';

-- Every actor with each group it belongs to, directly or through other groups, and with itself. The union removes
-- duplicates, so a circle of groups ends as well.
create view public.v_event_actor_group as
    with recursive reached (actor_ref, group_ref) as (
        select a.actor_ref, a.actor_ref from public.event_actor a
        union
        select m.member_ref, m.member_ref from public.event_actor_member m
        union
        select m.group_ref, m.group_ref from public.event_actor_member m
        union
        select g.actor_ref, m.group_ref from reached g join public.event_actor_member m on m.member_ref = g.group_ref
    )
    select r.actor_ref, r.group_ref from reached r;
comment on view public.v_event_actor_group is 'every actor of a membership with each group it belongs to, directly or through other groups, and with itself';
comment on column public.v_event_actor_group.actor_ref is 'the actor; a group is an actor as well';
comment on column public.v_event_actor_group.group_ref is 'the group, or the actor itself';

-- The actors that a broadcast reaches.
create view public.v_event_known_actor as
    select s.recipient_ref as actor_ref from public.event_subscription s
    union select a.actor_ref from public.event_actor a
    union select m.member_ref from public.event_actor_member m
    union select m.group_ref from public.event_actor_member m;
comment on view public.v_event_known_actor is 'the actors that a broadcast reaches: they subscribe, belong to a group, or keep a read state';
comment on column public.v_event_known_actor.actor_ref is 'the actor';

-- Whether subscriptions are in force. Without them every event is a broadcast, as it was before there were any.
create function gov_handoff.gov_subscription_enabled()
returns boolean language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce((select lower(btrim(c.value)) not in ('false', 'off', 'no', '0')
                       from public.dot_config c where c.key = 'queue.subscription_resolution.enabled'), true)
$$;
comment on function gov_handoff.gov_subscription_enabled() is 'whether subscriptions decide who an event is for; dot_config queue.subscription_resolution.enabled';

-- Which step a subscription matches an event at: 1 exact, 2 any type, 3 any stream, 4 the whole domain, 5 any domain.
-- Null: it does not match. What a row leaves open is null.
create function gov_handoff.gov_subscription_step(p_domain text, p_type text, p_stream text, p_event_domain text,
                                             p_event_type text, p_event_stream text)
returns int language sql immutable
return case when p_domain <> p_event_domain or p_type <> p_event_type or p_stream <> p_event_stream then null
            when p_domain is null then 5
            when p_type is null and p_stream is null then 4
            when p_stream is null then 3
            when p_type is null then 2
            else 1 end;
comment on function gov_handoff.gov_subscription_step(text, text, text, text, text, text)
    is 'at which of the steps 1 to 5 a subscription matches an event by domain, type and stream; null: it does not';

-- The six steps. A recipient is decided by the first step at which one of its rows matches; at that step a muted row
-- outweighs the others. An actor that no row names is decided by its groups, and one group that receives the event is
-- enough. Step 0 is an event that names its recipients itself.
create view gov_handoff.event_resolution as
with member as materialized (select g.actor_ref, g.group_ref from public.v_event_actor_group g),
known as materialized (select k.actor_ref from public.v_event_known_actor k),
switch as materialized (select gov_handoff.gov_subscription_enabled() as enabled)
select e.id as event_id, r.actor_ref, r.step, r.via, r.muted
  from public.event_outbox e
 cross join lateral (
    with decided as materialized (
        select distinct on (s.recipient_ref) s.recipient_ref, s.step, s.mute
          from (select a.recipient_ref, 0 as step, false as mute
                  from public.event_addressee a where a.event_id = e.id
                union all
                select b.recipient_ref,
                       gov_handoff.gov_subscription_step(b.event_domain, b.event_type, b.event_stream,
                                                         e.event_domain, e.event_type, e.event_stream),
                       b.mute
                  from public.event_subscription b
                 where (select w.enabled from switch w)
                   and (b.scope_subject_table is null or b.scope_subject_table = e.event_subject_table)
                   -- The filter is compared with the payload and the columns of the event. A column wins over a payload
                   -- key of the same name.
                   and case when coalesce(b.scope_filter, '{}') = '{}' then true
                            else case when jsonb_typeof(e.safe_payload) = 'object' then e.safe_payload else '{}' end
                                 || (to_jsonb(e) - 'safe_payload') @> b.scope_filter end) s
         where s.step is not null
         order by s.recipient_ref, s.step, s.mute desc),
    named as materialized (
        select distinct on (n.actor_ref) n.actor_ref, n.step, n.recipient_ref, n.mute
          from (select d.recipient_ref as actor_ref, d.* from decided d
                union all
                select m.actor_ref, d.* from decided d join member m on m.group_ref = d.recipient_ref
                 where m.actor_ref <> d.recipient_ref) n
         order by n.actor_ref, n.actor_ref <> n.recipient_ref, n.mute, n.step, n.recipient_ref)
    select n.actor_ref, n.step, n.recipient_ref as via, n.mute as muted from named n
    union all
    select k.actor_ref, 6, null, false from known k
     where not exists (select from decided d where not d.mute)
       and k.actor_ref <> e.actor_ref
       and not exists (select from named n where n.actor_ref = k.actor_ref)) r;
comment on view gov_handoff.event_resolution is 'who each event is for, muted recipients included; v_event_recipient is what others read';

create view public.v_event_recipient as
select r.event_id, r.actor_ref, r.step,
       (array['addressed', 'exact', 'domain_wildcard', 'stream_wildcard', 'domain_only', 'any_domain', 'broadcast'])[r.step + 1] as step_name,
       r.via
  from gov_handoff.event_resolution r where not r.muted;
comment on view public.v_event_recipient is 'who each event is for; ask for one event_id, or for a few';
comment on column public.v_event_recipient.event_id is 'the event';
comment on column public.v_event_recipient.actor_ref is 'the recipient: the actor that a subscription names, and each member of it';
comment on column public.v_event_recipient.step is 'the step that decided: 0 addressed, 1 exact, 2 domain wildcard, 3 stream wildcard, 4 domain only, 5 any domain, 6 broadcast';
comment on column public.v_event_recipient.step_name is 'the step as a word';
comment on column public.v_event_recipient.via is 'the recipient of the subscription that decided: the actor itself, or a group it belongs to; null for a broadcast';

create function public.fn_event_recipients(p_event uuid)
returns table (actor_ref text, step int, step_name text, via text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
-- The steps are estimated as much work and are little; compiling them would take longer than running them.
set jit = off
as $$
    select r.actor_ref, r.step, r.step_name, r.via from public.v_event_recipient r where r.event_id = p_event
     order by r.step, r.actor_ref
$$;
comment on function public.fn_event_recipients(uuid)
    is 'Who an event is for: each recipient, the step that decided, and through which group. Muted recipients are left out.';

-- Why somebody does not receive an event: the muted recipients as well.
create function gov_handoff.gov_event_resolution(p_event uuid)
returns table (actor_ref text, step int, via text, muted boolean)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select r.actor_ref, r.step, r.via, r.muted from gov_handoff.event_resolution r where r.event_id = p_event
     order by r.muted, r.step, r.actor_ref
$$;
comment on function gov_handoff.gov_event_resolution(uuid) is 'who an event is for, muted recipients included; the events recipients command shows it';

-- Adds a member to a role or agency, or removes it. Returns whether this changed anything.
create function gov_handoff.gov_member_set(p_group text, p_member text, p_present boolean, p_actor text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_group !~ '^(role|agency):[^[:space:]]+$' or p_member !~ '^(user|agency|role|agent|svc):[^[:space:]]+$' then
        raise exception 'a group is `role:name` or `agency:name`, a member `user:`, `agent:`, `svc:`, `role:` or `agency:name`; found % in %',
            p_member, p_group using errcode = 'GH003';
    end if;
    if p_present then
        if p_group = p_member
           or exists (select from public.v_event_actor_group g where g.actor_ref = p_group and g.group_ref = p_member) then
            raise exception '% cannot be a member of %, which belongs to it', p_member, p_group using errcode = 'GH003';
        end if;
        insert into public.event_actor_member (group_ref, member_ref, added_by)
        values (p_group, p_member, coalesce(p_actor, session_user::text))
        on conflict do nothing;
    else
        delete from public.event_actor_member m where m.group_ref = p_group and m.member_ref = p_member;
    end if;
    return found;
end
$$;
comment on function gov_handoff.gov_member_set(text, text, boolean, text) is 'adds a member to a role or agency, or removes it; true: this changed something';

-- Makes subscriptions and memberships as a file has them. With p_prune those that the file does not name are removed. The
-- answer says what was done, or with p_dry_run what would be. The lock keeps a second call out: the live table may have no
-- key that would stop the same row from being added twice. Readers are not held up.
create function gov_handoff.gov_subscription_apply(p_subscriptions jsonb, p_members jsonb, p_prune boolean, p_dry_run boolean, p_actor text)
returns table (what text, subject text, change text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    lock table public.event_subscription, public.event_actor_member in share row exclusive mode;
    return query
    with wanted as materialized (
        select distinct on (w.recipient_ref, w.event_domain, w.event_type, w.event_stream, w.scope_subject_table, w.scope_filter)
               w.recipient_ref, w.event_domain, w.event_type, w.event_stream, w.scope_subject_table,
               coalesce(w.scope_filter, '{}') as scope_filter, coalesce(w.mute, false) as mute
          from jsonb_to_recordset(p_subscriptions) as w (recipient_ref text, event_domain text, event_type text, event_stream text,
                   scope_subject_table text, scope_filter jsonb, mute boolean)),
    there as materialized (
        select s.ctid as place, s.recipient_ref, s.event_domain, s.event_type, s.event_stream, s.scope_subject_table,
               coalesce(s.scope_filter, '{}') as scope_filter, s.mute
          from public.event_subscription s),
    paired as materialized (
        select w.recipient_ref is not null as wanted, t.place, coalesce(w.recipient_ref, t.recipient_ref) as recipient_ref,
               coalesce(w.event_domain, t.event_domain) as event_domain, coalesce(w.event_type, t.event_type) as event_type,
               coalesce(w.event_stream, t.event_stream) as event_stream,
               coalesce(w.scope_subject_table, t.scope_subject_table) as scope_subject_table,
               coalesce(w.scope_filter, t.scope_filter) as scope_filter, w.mute, t.mute as was_mute
          from wanted w
          full join there t
            on (t.recipient_ref, coalesce(t.event_domain, ''), coalesce(t.event_type, ''), coalesce(t.event_stream, ''),
                coalesce(t.scope_subject_table, ''), t.scope_filter)
             = (w.recipient_ref, coalesce(w.event_domain, ''), coalesce(w.event_type, ''), coalesce(w.event_stream, ''),
                coalesce(w.scope_subject_table, ''), w.scope_filter)),
    added as (
        insert into public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter, mute)
        select p.recipient_ref, p.event_domain, p.event_type, p.event_stream, p.scope_subject_table, p.scope_filter, p.mute
          from paired p where p.place is null and not p_dry_run),
    changed as (
        update public.event_subscription s set mute = p.mute
          from paired p where s.ctid = p.place and p.wanted and p.mute <> p.was_mute and not p_dry_run),
    removed as (
        delete from public.event_subscription s using paired p
         where s.ctid = p.place and not p.wanted and p_prune and not p_dry_run)
    select 'subscription', concat_ws(' ', p.recipient_ref, coalesce(p.event_domain, '*') || '/' || coalesce(p.event_type, '*')
               || '/' || coalesce(p.event_stream, '*'), p.scope_subject_table, nullif(p.scope_filter::text, '{}')),
           case when p.place is null then 'added' when not p.wanted then case when p_prune then 'removed' else 'not in the file' end
                when p.mute = p.was_mute then 'unchanged' when p.mute then 'muted' else 'unmuted' end
      from paired p order by 2;
    return query
    with wanted as materialized (
        select distinct w.group_ref, w.member_ref
          from jsonb_to_recordset(p_members) as w (group_ref text, member_ref text)),
    added as (
        insert into public.event_actor_member (group_ref, member_ref, added_by)
        select w.group_ref, w.member_ref, coalesce(p_actor, session_user::text) from wanted w where not p_dry_run
        on conflict do nothing),
    removed as (
        delete from public.event_actor_member m
         where p_prune and not p_dry_run
           and not exists (select from wanted w where (w.group_ref, w.member_ref) = (m.group_ref, m.member_ref)))
    select 'member', coalesce(w.member_ref, m.member_ref) || ' of ' || coalesce(w.group_ref, m.group_ref),
           case when m.group_ref is null then 'added' when w.group_ref is not null then 'unchanged'
                when p_prune then 'removed' else 'not in the file' end
      from wanted w full join public.event_actor_member m on (w.group_ref, w.member_ref) = (m.group_ref, m.member_ref)
     order by 2;
end
$$;
comment on function gov_handoff.gov_subscription_apply(jsonb, jsonb, boolean, boolean, text)
    is 'makes subscriptions and memberships as a file has them, and says for each what was done; the subscriptions apply command calls it';

do $$
declare
    f regprocedure;
begin
    foreach f in array array['gov_handoff.gov_subscription_enabled()', 'gov_handoff.gov_subscription_step(text,text,text,text,text,text)',
        'public.fn_event_recipients(uuid)', 'gov_handoff.gov_event_resolution(uuid)', 'gov_handoff.gov_member_set(text,text,boolean,text)',
        'gov_handoff.gov_subscription_apply(jsonb,jsonb,boolean,boolean,text)']::regprocedure[] loop
        execute format('alter function %s owner to gov_handoff_owner', f);
        execute format('revoke all on function %s from public', f);
    end loop;
end
$$;
-- A view runs the functions in it with the rights of the session that reads it.
grant execute on function gov_handoff.gov_subscription_enabled(), gov_handoff.gov_subscription_step(text, text, text, text, text, text),
    public.fn_event_recipients(uuid), gov_handoff.gov_event_resolution(uuid)
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
grant execute on function gov_handoff.gov_member_set(text, text, boolean, text),
    gov_handoff.gov_subscription_apply(jsonb, jsonb, boolean, boolean, text) to gov_handoff_operator;
grant select, insert, update, delete on public.event_subscription, public.event_actor_member, public.event_actor, public.event_addressee
    to gov_handoff_owner;
grant select on gov_handoff.event_resolution, public.v_event_recipient, public.v_event_actor_group, public.v_event_known_actor
    to gov_handoff_owner;
grant select on public.event_subscription, public.event_actor_member, public.event_actor, public.event_addressee
    to gov_handoff_worker, gov_handoff_operator;
grant select on public.v_event_recipient, public.v_event_actor_group, public.v_event_known_actor
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
