// Package config fills structs from environment variables.
//
// A field takes part when it has the tag env. The other tags are:
//
//	env:"CCNQ_X"           the variable; env:"CCNQ_X,required" must be set
//	envDefault:"3000"      the value when the variable is unset
//	doc:"…"                one sentence for the generated table
//	secret:"true"          the value is never repeated in an error
//	min:"1" max:"65535"    bounds of a whole number or of milliseconds
//	enum:"off,on"          the values that a string may have
//	section:"Queue"        on a struct: the part of the table its fields are in
//
// Fields are of type string, bool, an integer type or one of this package's
// types. Structs nest.
//
// # Values
//
// An empty value is the same as an unset variable: the default holds.
// A boolean is true, false, 1 or 0 and nothing else.
//
// Every variable X may also be given as X_FILE, which names a file with the
// value; one newline at its end is dropped. Giving both is an error, and so is
// an empty file. A variable whose own name ends in _FILE has no such form.
//
// # Names
//
// A name that begins with CCNQ_ and that no service of ccnq knows is an error.
// Ignored are CCNQ_TEST_*, which belong to the project's tests, and what
// container platforms inject for a service called ccnq or ccnq-something:
// *_SERVICE_HOST, *_SERVICE_PORT*, *_PORT=tcp://…, *_PORT_80_TCP* and the same
// with udp and sctp. Kubernetes sets CCNQ_PORT in that way; a value of that
// form counts as unset.
//
// # Failure
//
// [Load] reports all problems at once. The package keeps no state and all its
// functions are safe for concurrent use.
package config
