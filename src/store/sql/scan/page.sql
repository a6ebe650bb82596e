-- The next dirty groups of one scan, by key, and of each the members that the scan has not reached. One statement, and so
-- one snapshot: whatever was marked up to the generation of a group is seen with it. A group whose last scan is complete
-- begins again with its first member when the ruleset version has risen; a scan under way goes on.
with k as materialized (
    select gov_handoff.gov_ruleset_version() as version
), picked as materialized (
    select g.*, k.version, g.scan_version is null or g.scan_version is not distinct from g.scanned_version and g.scan_version < k.version as anew
      from public.gov_candidate_group g
     cross join k
     where g.dirty and g.group_key > $1 and gov_handoff.gov_scan_shard(g.group_key, $3) = $2
     order by g.group_key
     limit $4
)
select p.version, p.group_key, p.dims, p.generation, p.changes, p.last_kind,
       case when isfinite(p.last_occurred_at) then extract(epoch from clock_timestamp() - p.last_occurred_at)::bigint end as age,
       p.members, p.accepted, p.rejected, p.retired, p.scan_version, p.scan_mark, p.scan_key, p.anew,
       d.ids as departures, d.accepted as departed_accepted, d.rejected as departed_rejected, d.retired as departed_retired,
       o.candidate_key, o.group_mark, o.generation as object_generation, o.scanned_group, o.counted_as, o.input_quality_state,
       o.input_reason, o.retired as object_retired, o.last_kind as object_kind,
       case when isfinite(o.last_occurred_at) then extract(epoch from clock_timestamp() - o.last_occurred_at)::bigint end as object_age,
       o.n as object_number, m.most as at_most
  from picked p
 cross join (select greatest($5::bigint / greatest(count(*), 1), 1) as most from picked) m
  left join lateral (
       select array_agg(e.id) as ids, count(*) filter (where e.counted_as = 'accepted') as accepted,
              count(*) filter (where e.counted_as = 'rejected') as rejected, count(*) filter (where e.counted_as = 'retired') as retired
         from public.gov_candidate_departure e where e.group_key = p.group_key) d on true
  left join lateral (
       select c.*, row_number() over (order by c.group_mark, c.candidate_key) as n
         from (select * from public.gov_candidate_state s
                where s.group_key = p.group_key
                  and s.group_mark >= case when p.anew then 0 else p.scan_mark end
                  and (s.group_mark, s.candidate_key) > (case when p.anew then 0 else p.scan_mark end, case when p.anew then '' else p.scan_key end)
                order by s.group_mark, s.candidate_key limit m.most) c) o on true
 order by p.group_key, o.n
