package denylist

import (
	"errors"
	"fmt"

	"github.com/ccnq/ccnq/pkg/admin"
)

// Checks are the parts of the service as /readyz names them, for a program that
// has an admin listener of its own. They may be used before Start. A process
// that stands by is ready.
func (s *Service) Checks() admin.Checks {
	return admin.Checks{
		"denylist_nats": s.natsStatus, "denylist_streams": s.streamsStatus,
		"denylist_store": s.storeStatus, "denylist_work": s.workStatus, "denylist_qos": s.qosStatus,
	}
}

func (s *Service) qosStatus() admin.Status {
	if aggregator := s.aggregator.Load(); aggregator != nil {
		return aggregator.Status()
	}
	return admin.OK
}

func (s *Service) natsStatus() admin.Status {
	if s.ending.Begun() {
		return admin.NotReady("stopping")
	}
	if conn := s.conn.Load(); conn == nil || !conn.Connected() {
		return admin.NotReady("not connected")
	}
	return admin.OK
}

func (s *Service) streamsStatus() admin.Status {
	keeper := s.streams.Load()
	if keeper == nil {
		return admin.NotReady("not started")
	}
	if err := keeper.Err(); err != nil {
		return admin.NotReady(err.Error())
	}
	return admin.OK
}

func (s *Service) storeStatus() admin.Status {
	if !s.cfg.Denylist.Enabled {
		return admin.OK
	}
	if candidate := s.candidate.Load(); candidate == nil || !candidate.Up() {
		return admin.NotReady("away, or not prepared yet")
	}
	return admin.OK
}

// workStatus is about the leader's work.
func (s *Service) workStatus() admin.Status {
	candidate, proj, publisher := s.candidate.Load(), s.projector.Load(), s.publisher.Load()
	if candidate == nil || proj == nil || publisher == nil || !candidate.Leads() {
		if s.deps.Memory && s.cfg.Denylist.Enabled {
			return admin.NotReady("does not lead yet")
		}
		return admin.OK // stands by
	}
	if err := proj.Err(); err != nil {
		return admin.Degraded("events are not applied: " + err.Error())
	}
	if err := publisher.Err(); err != nil {
		return admin.Degraded("changes are not published: " + err.Error())
	}
	if !s.begun.Load() {
		return admin.NotReady("the tables are being made from the events")
	}
	return admin.OK
}

var (
	errStoreAway = errors.New("the store cannot be reached")
	errNotBegun  = errors.New("the tables are being made from the events; ask again soon")
)

// ready says whether requests can be answered.
func (s *Service) ready() error {
	candidate := s.candidate.Load()
	switch {
	case candidate == nil || !candidate.Up():
		return errStoreAway
	case (s.deps.Memory || candidate.Leads()) && !s.begun.Load():
		if err := s.streams.Load().Err(); err != nil {
			return fmt.Errorf("there is no event stream to make the tables from: %w", err)
		}
		return errNotBegun
	}
	return nil
}
