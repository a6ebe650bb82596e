set transaction_timeout = 0
