package outbox

import (
	"fmt"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Kind is what became of a request, and why.
type Kind uint8

// The kinds. Would kinds are those of monitor mode, which lets requests pass.
// Only [QueueFull], [QueueTimeout] and [QoSCounted] count towards blocks and are
// kept on disk. Files hold their numbers, so they must not change.
const (
	QueueFull Kind = iota
	QueueTimeout
	QoSCounted
	Denylist
	QoS
	WouldQueueFull
	WouldQueueTimeout
	WouldDenylist
	WouldQoS
	kinds // their number
)

var reasons = [kinds]wire.DenialReason{
	QueueFull: wire.DeniedQueueFull, WouldQueueFull: wire.DeniedQueueFull,
	QueueTimeout: wire.DeniedQueueTimeout, WouldQueueTimeout: wire.DeniedQueueTimeout,
	Denylist: wire.DeniedByDenylist, WouldDenylist: wire.DeniedByDenylist,
	QoS: wire.DeniedByQoS, WouldQoS: wire.DeniedByQoS, QoSCounted: wire.DeniedByQoSCounted,
}

func (k Kind) durable() bool { return k <= QoSCounted }

func (k Kind) would() bool { return k >= WouldQueueFull }

// subject is where events of the kind go, from the edge that sends.
func (k Kind) subject(edgeID string) string {
	if k.would() {
		return fmt.Sprintf(wire.SubjectWouldDeny, reasons[k], edgeID)
	}
	return fmt.Sprintf(wire.SubjectDenied, reasons[k], edgeID)
}

// eventType is the CloudEvents type of the kind.
func (k Kind) eventType() string {
	if k.would() {
		return wire.TypeWouldDeny
	}
	return wire.TypeDenied
}
