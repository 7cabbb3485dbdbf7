-- The roles of ccnq, for psql as a superuser of a new database:
--
--   psql -d ccnq -v owner_password=… -v service_password=… -f roles.sql
--
-- ccnq_owner owns the schema and is used by `ccnq migrate` alone. The services
-- connect as ccnq: it reads and writes rows, and can change no table or function.

CREATE ROLE ccnq_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ccnq LOGIN PASSWORD :'service_password';

REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ccnq_owner, ccnq;

CREATE SCHEMA queue AUTHORIZATION ccnq_owner;
GRANT USAGE ON SCHEMA queue TO ccnq;
ALTER DEFAULT PRIVILEGES FOR ROLE ccnq_owner IN SCHEMA queue
    GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON TABLES TO ccnq;
ALTER DEFAULT PRIVILEGES FOR ROLE ccnq_owner IN SCHEMA queue
    GRANT USAGE, SELECT ON SEQUENCES TO ccnq;
