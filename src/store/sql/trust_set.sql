select changed, promoted from public.gov_trust_set($1, $2, $3, $4, $5)
