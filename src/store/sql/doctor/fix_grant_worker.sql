grant gov_handoff_worker to {role};
