package proxy

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// refuse answers a request that is not passed on.
func refuse(w http.ResponseWriter, o *Outcome, err error) {
	o.Class, o.Err = BadRequest, err
	status := http.StatusBadRequest
	if errors.Is(err, errConnect) {
		status = http.StatusMethodNotAllowed
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	writeError(w, o, status, err.Error())
}

// writeError writes a complete answer of the proxy's own.
func writeError(w http.ResponseWriter, o *Outcome, status int, text string) {
	body := strconv.Itoa(status) + " " + http.StatusText(status) + ": " + text + "\n"
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Type", "text/plain; charset=utf-8")
	o.Status = status
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may be gone: nothing else can be done for it
}
