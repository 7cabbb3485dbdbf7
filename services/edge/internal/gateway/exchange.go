package gateway

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// exchange is one request on its way. It belongs to one goroutine.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request
	arrived time.Time

	// Set by the identity stage.
	client    netip.Addr   // not valid when the peer has no address
	group     netip.Prefix // of the client
	exempt    bool         // on the allowlist
	anonymous bool         // the address is a trusted proxy's: unknown
	relayed   bool         // the address stands in a header: the connection is somebody else's

	// Set by the denylist stage.
	wouldBlock bool // blocked, in monitor mode

	// Set by the qos stage.
	throttled qos.Reason // why it is refused, or would be in monitor mode

	// Set by the cache stage.
	ask       cache.Request
	way       way
	cached    cache.Word          // what the cache did; empty when it is off
	recording *cache.Recording    // of a response that passes by it; may be nil
	via       http.ResponseWriter // to w, past the cache; nil when it is off

	// Set for the exchange of a fetch that nobody waits for.
	background bool

	// Set by the queue stage, and by the cache stage for whom it asked the queue.
	ticket *admission.Ticket
	queue  admission.Outcome

	// Set by the proxy stage.
	forwarded time.Time // when the origin was asked
	origin    proxy.Outcome

	// Set by the responder.
	reference string

	// Set by whoever ends the way.
	reason Reason
	status int
}

// exchanges lends exchanges to requests.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// free lends the exchange to another request. It must not be used any more.
func (x *exchange) free() {
	*x = exchange{}
	exchanges.Put(x)
}

// close gives back what the stages took.
func (x *exchange) close() {
	x.recording.End(x.origin.Class == proxy.OK)
	x.ticket.Done()
}
