// Package store keeps responses on disk (bbolt) and the hot ones in memory. It
// knows keys, names, heads and bodies, and nothing of HTTP.
package store
