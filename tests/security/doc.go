// Package security tests the permissions and the encryption that deploy
// describes: the real services on a NATS server that runs with the
// configuration files of deploy/nats, and whoever has stolen the credential of
// one of them.
package security
