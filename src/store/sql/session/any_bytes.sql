set client_encoding = 'SQL_ASCII'
