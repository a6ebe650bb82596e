-- The peer: a queue with pgmq's semantics in SQL of our own. Reading makes a message invisible for a while by an update of its
-- visibility time, which is indexed; finishing deletes it.
create table peer_queue (
    msg_id      bigint generated always as identity primary key,
    read_ct     int         not null default 0,
    enqueued_at timestamptz not null default now(),
    vt          timestamptz not null,
    message     jsonb
);
create index peer_queue_vt on peer_queue (vt);

create function peer_send(p_messages jsonb) returns setof bigint language sql as $$
    insert into peer_queue (vt, message) select clock_timestamp(), m.message from jsonb_array_elements(p_messages) as m (message)
    returning msg_id
$$;

create function peer_read(p_seconds int, p_limit int)
returns table (msg_id bigint, read_ct int, enqueued_at timestamptz, vt timestamptz, message jsonb) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with visible as (
        select q.msg_id from peer_queue q where q.vt <= clock_timestamp() order by q.msg_id limit p_limit for update skip locked
    )
    update peer_queue q set vt = clock_timestamp() + p_seconds * interval '1 second', read_ct = q.read_ct + 1
      from visible v where q.msg_id = v.msg_id
    returning q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message;
end
$$;

create function peer_delete(p_ids bigint[]) returns setof bigint language sql as $$
    delete from peer_queue where msg_id = any (p_ids) returning msg_id
$$;

create table peer_commit (n int);

select fn_executor_register(e, 'Agent', 'bench', current_user), fn_job_subscribe(e, 'k', null, 0, 1000000, true, 'bench'), fn_executor_heartbeat(e)
  from unnest('{e0, e1}'::text[]) as e;
-- The lane of the jobs is made by the first one.
select fn_job_enqueue('k', 'first', 'Agent');
