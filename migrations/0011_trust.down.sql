drop function gov_handoff.gov_trust_set, gov_handoff.gov_trust_promote;
