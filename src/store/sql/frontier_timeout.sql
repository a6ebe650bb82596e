set local statement_timeout = '10min'
