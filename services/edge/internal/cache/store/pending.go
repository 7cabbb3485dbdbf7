package store

import "sync"

const pendingShards = 64

// pendingItems are the items that are not on disk yet, by id. Together with
// the index they are readable from the moment they are put.
type pendingItems[H any] struct {
	shards [pendingShards]struct {
		mu    sync.RWMutex
		items map[uint64]*Item[H]
	}
}

func (p *pendingItems[H]) get(id uint64) *Item[H] {
	sh := &p.shards[id%pendingShards]
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.items[id]
}

func (p *pendingItems[H]) set(id uint64, it *Item[H]) {
	sh := &p.shards[id%pendingShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.items == nil {
		sh.items = make(map[uint64]*Item[H])
	}
	sh.items[id] = it
}

func (p *pendingItems[H]) remove(id uint64) {
	sh := &p.shards[id%pendingShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.items, id)
}
