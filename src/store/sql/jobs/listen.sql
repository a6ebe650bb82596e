listen gov_job
