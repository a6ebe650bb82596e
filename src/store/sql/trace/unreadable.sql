-- Whether an open finding says that a source cannot be read.
select exists (select from public.v_governance_finding f
                where f.resolved_at is null and f.kind = 'source_unreadable'
                  and f.coalesce_key = 'source_unreadable:' || $1::text) as unreadable
