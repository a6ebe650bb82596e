select measure, class, n, exact from public.v_gov_coverage order by measure, n desc, class limit 60
