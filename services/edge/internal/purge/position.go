package purge

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// position is a place in one life of the stream: what it has behind this is
// not applied yet.
type position struct {
	// Created is when the stream was made. The zero value is no stream's.
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
}

const (
	positionFile     = "purges.json"
	maxPositionBytes = 1024
)

// loadPosition reads the place. What does not read is no place.
func loadPosition(dir string) position {
	f, err := os.Open(filepath.Join(dir, positionFile))
	if err != nil {
		return position{}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPositionBytes))
	if err != nil {
		return position{}
	}
	return parsePosition(b)
}

func parsePosition(b []byte) position {
	var p position
	if err := json.Unmarshal(b, &p); err != nil {
		return position{}
	}
	return p
}

// save writes the place in such a way that the end of the process leaves the old
// one or the new one. After a power cut it may be either too, or unreadable, which
// is no place.
func (p position) save(dir string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, positionFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("keep the place in the purges: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep the place in the purges: %w", err)
	}
	return nil
}
