select a.what, a.subject, a.change
  from gov_handoff.gov_subscription_apply(p_subscriptions => $1, p_members => $2, p_prune => $3, p_dry_run => $4, p_actor => $5) a
