insert into gov_handoff_selftest.births (label, born_at) values ('{label}', null);
insert into gov_handoff_selftest.objects (label, born_at) values ('{label}', null);
