-- Those of $1 that retention took one by one. A range does not answer for one signal: it stands for keys that had nothing left.
select r.id from public.gov_retired_signal r where r.id = any ($1::uuid[])
