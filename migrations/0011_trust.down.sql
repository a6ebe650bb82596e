drop function public.gov_trust_set, public.gov_trust_promote;
