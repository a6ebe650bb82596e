drop function public.gov_trust_set(text, text, text, boolean, text);
drop function public.gov_trust_promote(text);
