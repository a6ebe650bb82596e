-- A row's transaction as a 64-bit number, and when it committed, if the server keeps commit times. A number below 3 is
-- none: an early server wrote it over the transaction of a row that it froze.
select case when $1::bigint >= 3 then
            (w.wide - case when w.wide > w.next then 4294967296 else 0 end)::bigint end as transaction,
       case when current_setting('track_commit_timestamp')::boolean and $1::bigint >= 3
            then pg_xact_commit_timestamp($1::text::xid) end as committed_at
  from (select n.next, n.next - mod(n.next, 4294967296) + $1::bigint as wide
          from (select pg_snapshot_xmax(pg_current_snapshot())::text::numeric as next) n) w
