select public.gov_handoff_probe()
