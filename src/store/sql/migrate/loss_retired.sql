-- A signal whose key is in a retired range is counted with the range.
select least((select coalesce(sum(r.hi::numeric - r.lo::numeric + 1), 0) from public.gov_retired_range r)
             + (select count(*) from public.gov_retired_signal s
                 where not exists (select from public.gov_retired_range r
                                    where r.source_name = s.source_name and s.number between r.lo and r.hi)),
             9223372036854775807)::bigint
