select public.gov_selftest_clean()
