-- Single signals that retention removed.
select r.id, r.recorded_at from public.gov_retired_signal r where r.id = any ($1::uuid[])
