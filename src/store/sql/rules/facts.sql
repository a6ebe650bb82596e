-- Groups as the last scan counted them, to try rules on.
select g.group_key, g.dims, g.changes, g.last_kind, g.members, g.accepted, g.rejected, g.retired, g.verdict,
       case when isfinite(g.last_occurred_at) then extract(epoch from clock_timestamp() - g.last_occurred_at)::bigint end as age
  from public.gov_candidate_group g
 order by g.group_key
 limit $1
