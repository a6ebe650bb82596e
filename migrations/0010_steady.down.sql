-- The gates that were replaced go with 0003 and 0009; nothing calls them in between.
drop function public.gov_notices_retire(timestamptz, int);
drop function public.gov_clock_mend(text);
alter table public.gov_worker_frontier drop column certified_away;
delete from public.dot_config where key = 'governance.holes.kept';
