-- The boundary of a source whose backlog is not handed off, if it has rows.
select b.boundary from public.gov_source_boundary b
 where b.source_name = $1 and b.policy <> 'hand_off' and b.row_count > 0
