select k.subject from public.gov_backlog_key k where k.boundary = $1 and k.subject = any ($2)
