select gov_handoff.gov_finding_resolve({key}, 'seen by an operator');
