// Package manifests tests what deploy says to Kubernetes and to systemd: the
// manifests are built as kustomize builds them, decoded strictly into the types
// of the Kubernetes API, and checked against the programs that they start.
package manifests
