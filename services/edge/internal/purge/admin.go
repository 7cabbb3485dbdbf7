package purge

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Route is where the admin listener purges.
const Route = "POST /cache/purge"

// ServeHTTP purges this edge alone: the body is a [wire.PurgeRequest] whose id
// may be left out, the answer a [wire.PurgeReply]. The content type must be
// application/json, which no page of another site can send from a browser.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxMessage))
	if err != nil {
		http.Error(w, "the body cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	req, err := decode(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply, err := json.Marshal(l.apply(r.Context(), fromAdmin, req))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(reply, '\n')) // the operator may be gone
}

// decode reads a request and gives it an id if it has none.
func decode(body []byte) (wire.PurgeRequest, error) {
	var req wire.PurgeRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return req, err
	}
	if req.ID == "" {
		req.ID = NewID()
	}
	return req, req.Validate()
}

// NewID returns an id that no other purge has.
func NewID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}
