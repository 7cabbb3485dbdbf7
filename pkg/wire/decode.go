package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxMessage is the greatest size of a message in bytes: NATS' default.
const MaxMessage = 1 << 20

// ErrInvalid is wrapped by every error of [Decode].
var ErrInvalid = errors.New("invalid message")

// Message is any message of this package.
type Message interface {
	// Validate reports the first bound that the message breaks.
	Validate() error
}

// Decode reads one JSON message and validates it. Fields that are not known
// are ignored, so that a newer sender can be understood.
func Decode[M Message](data []byte) (M, error) {
	var m M
	if len(data) > MaxMessage {
		return m, fmt.Errorf("%w: %d bytes are more than %d", ErrInvalid, len(data), MaxMessage)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return m, nil
}
