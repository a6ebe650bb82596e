insert into gov_handoff_selftest.births (label) values ('{label}'), ('{label}');
insert into gov_handoff_selftest.objects (label) values ('{label}'), ('{label}');
