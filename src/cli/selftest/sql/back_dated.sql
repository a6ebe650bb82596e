insert into gov_handoff_selftest.births (label, born_at) values ('{label}', now() - interval '10 years');
insert into gov_handoff_selftest.births (id, label, born_at) values (-{number}, '{label}', '0044-03-15 BC');
insert into gov_handoff_selftest.objects (label, born_at) values ('{label}', now() - interval '10 years');
