package projector

import (
	"context"
	"sort"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// page is what one read of the stream gave: possibly nothing.
type page struct {
	messages []bus.StreamMessage
	batch    store.Batch // the messages, decoded
	behind   uint64      // messages in the stream behind these
	err      error       // why nothing comes after it
}

// first is the batch of the first n messages, at least one.
func (p *page) first(n int) store.Batch {
	b := p.batch
	b.Next.Seq = p.messages[n-1].Sequence
	records, quarantined := p.upTo(b.Next.Seq)
	b.Records, b.Quarantined = b.Records[:records], b.Quarantined[:quarantined]
	return b
}

// drop removes the first n messages, at least one.
func (p *page) drop(n int) {
	records, quarantined := p.upTo(p.messages[n-1].Sequence)
	p.messages = p.messages[n:]
	p.batch.Records, p.batch.Quarantined = p.batch.Records[records:], p.batch.Quarantined[quarantined:]
}

// upTo is how many of each come up to a place in the stream.
func (p *page) upTo(seq uint64) (records, quarantined int) {
	b := &p.batch
	records = sort.Search(len(b.Records), func(i int) bool { return b.Records[i].Seq > seq })
	quarantined = sort.Search(len(b.Quarantined), func(i int) bool { return b.Quarantined[i].Seq > seq })
	return records, quarantined
}

// read reads and decodes the stream, one page ahead of whoever applies it, until
// ctx ends or the reader fails.
func read(ctx context.Context, reader *bus.Reader, at store.Checkpoint) <-chan page {
	pages := make(chan page)
	go func() {
		defer close(pages)
		for {
			messages, err := reader.Next(ctx, waitNew)
			next := page{messages: messages, behind: reader.Pending(), err: err}
			if len(messages) > 0 {
				next.batch = batch(messages, at)
			}
			select {
			case pages <- next:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return pages
}
