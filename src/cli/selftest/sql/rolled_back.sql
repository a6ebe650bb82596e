begin;
insert into gov_handoff_selftest.births (label) select '{label}' from generate_series(1, 2000);
insert into gov_handoff_selftest.objects (label) select '{label}' from generate_series(1, 2000);
rollback;
