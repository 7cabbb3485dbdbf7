// Package postgres is how a service reaches its database: the variables that
// say where it is, the pool, and the migrations.
//
// # State
//
// A [Database] holds a pool of connections and nothing else. The pool connects
// when it is used, and again after a loss. The database may be replaced by an
// empty one at any time: [Database.Prepare] makes it usable.
//
// # Poolers
//
// With a transaction pooler in between, CCNQ_PG_DIRECT_URL points past it, for
// what needs a session of its own: migrations, and LISTEN. The pool then sets
// no session parameters, so the role must have the schema in its search_path.
package postgres
