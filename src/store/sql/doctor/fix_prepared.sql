rollback prepared {gid};
