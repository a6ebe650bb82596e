#!/bin/sh
# Run once by the postgres image, as its superuser, when the data directory is new. Everything later works with the roles that
# this makes, and nothing uses the superuser again.
set -eu
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -v owner_password="$OWNER_PASSWORD" \
    -v daemon_password="$DAEMON_PASSWORD" -v operator_password="$OPERATOR_PASSWORD" -f /bootstrap/bootstrap.sql
