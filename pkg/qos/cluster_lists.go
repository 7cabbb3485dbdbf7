package qos

import "net/netip"

// blocked are the lists of the cluster as keys. They are never changed.
type blocked struct {
	lists               *Blocklists
	ips, subnets, hosts map[key]struct{}
}

// newBlocked reads the keys as requests are read, so that a node which writes an
// address in another way has it blocked here too.
func newBlocked(lists *Blocklists, compat bool) *blocked {
	set := func(texts []string, parse func(string) key) map[key]struct{} {
		keys := make(map[key]struct{}, len(texts))
		for _, text := range texts {
			keys[parse(text)] = struct{}{}
		}
		return keys
	}
	address := func(text string) key {
		if addr, err := netip.ParseAddr(text); err == nil {
			return addrKey(normal(addr))
		}
		return textKey(text)
	}
	if compat {
		address = textKey
	}
	return &blocked{
		lists: lists,
		ips:   set(lists.IPs, address), subnets: set(lists.Subnets, address), hosts: set(lists.Hosts, textKey),
	}
}

func in(keys map[key]struct{}, k key) bool {
	if len(keys) == 0 {
		return false
	}
	_, ok := keys[k]
	return ok
}
