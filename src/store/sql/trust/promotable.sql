-- Whether a capture waits whose producer has become trusted. The statement asks the findings, which are few.
select exists (
    select from public.system_issues i
      join public.gov_worker_cursor c on c.worker_name = $1 and c.source_name = i.detail ->> 'source'
     where i.issue_kind = 'untrusted_source' and i.resolved_at is null
       and coalesce(c.metadata #> '{trust,producers}' ? (i.detail ->> 'producer'), true))
