-- The server's process of this session, and the port that the server listens on; null on a Unix socket.
select pg_backend_pid() as pid, inet_server_port() as port
