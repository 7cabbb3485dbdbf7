package bus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Request asks on subject and waits for the reply until ctx ends, which must
// have a deadline. The error wraps one of this package's, see the package
// documentation, or ctx's when that was cancelled.
func Request[Req, Resp wire.Message](ctx context.Context, c *Conn, subject string, req Req) (Resp, error) {
	var resp Resp
	data, err := json.Marshal(req)
	if err != nil {
		return resp, fmt.Errorf("ask %s: %w", subject, err)
	}
	if !c.nc.IsConnected() {
		return resp, fmt.Errorf("ask %s: %w", subject, ErrDisconnected)
	}
	msg, err := c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: data})
	if err != nil {
		return resp, translate("ask "+subject, err)
	}
	// A service's refusal arrives as headers beside a nil error.
	if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
		return resp, fmt.Errorf("ask %s: %w", subject,
			&RemoteError{Code: Code(code), Message: msg.Header.Get(micro.ErrorHeader)})
	}
	resp, err = wire.Decode[Resp](msg.Data)
	if err != nil {
		return resp, fmt.Errorf("reply of %s: %w", subject, err)
	}
	return resp, nil
}
