drop function gov_handoff.gov_lease_modes, gov_handoff.gov_lease_or_operator, gov_handoff.gov_lease_fence, gov_handoff.gov_lease_resign, gov_handoff.gov_lease_stolen,
    gov_handoff.gov_lease_renew, gov_handoff.gov_lease_claim,
    gov_handoff.gov_clock_mend;
