// Package db holds the schema of ccnq's Postgres database: the migrations,
// embedded, and the function that runs them.
//
// # What is authoritative
//
// The files in migrations are the schema; nothing else creates a table or a
// function. goose records which of them have run in the table
// goose_db_version, in the same schema as everything else, so several
// installations can share one database under different schema names.
//
// # Concurrency
//
// Any number of processes may call [Migrate] at once, as replicas that start
// together do. One Postgres advisory lock for each schema name lets one of
// them work while the others wait; those then find nothing left to do. The
// lock belongs to the connection that runs the migrations: when the process or
// its connection dies, the lock is gone and so is the open transaction.
//
// # Failure
//
// Each migration runs in a transaction of its own. A failed one leaves the
// schema at the version before it, and the next call resumes there.
package db
