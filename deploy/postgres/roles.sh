#!/bin/sh
# Makes the roles in a new database. The Postgres image runs it once, when its
# volume is empty.
set -eu
credentials=/run/credentials
psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$POSTGRES_USER" -d "$POSTGRES_DB" \
	-v owner_password="$(cat "$credentials/owner")" -v service_password="$(cat "$credentials/service")" \
	-f /etc/ccnq/roles.sql
