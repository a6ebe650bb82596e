drop function public.gov_lease_or_operator, public.gov_lease_fence, public.gov_lease_resign, public.gov_lease_stolen,
    public.gov_lease_renew, public.gov_lease_claim,
    public.gov_clock_mend;
