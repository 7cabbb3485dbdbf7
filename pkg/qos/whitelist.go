package qos

import (
	"fmt"
	"net/netip"
)

// whitelists are the lists of the options as keys.
type whitelists struct{ hosts, ips, subnets []key }

// whitelists normalises the entries as those of requests are, or takes them as
// they are with Compat.
func (s *settings) whitelists() (whitelists, error) {
	var w whitelists
	var err error
	if w.hosts, err = s.keys("HostWhitelist", s.hosts, func(entry string) (key, error) {
		return textKey(hostKey(entry)), nil
	}); err != nil {
		return w, err
	}
	if w.ips, err = s.keys("IPWhitelist", s.ips, parseIPKey); err != nil {
		return w, err
	}
	w.subnets, err = s.keys("SubnetWhitelist", s.subnets, func(entry string) (key, error) {
		addr, err := parseSubnet(entry, s.maskBits)
		if err != nil {
			return key{}, err
		}
		k, _, _ := subnetKey(addr, s.maskBits)
		return k, nil
	})
	return w, err
}

func (s *settings) keys(option string, entries []string, parse func(string) (key, error)) ([]key, error) {
	keys := make([]key, 0, len(entries))
	for _, entry := range entries {
		k := textKey(entry)
		if !s.compat {
			var err error
			if k, err = parse(entry); err != nil {
				return nil, &OptionError{Option: option, Problem: err.Error()}
			}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func parseIPKey(entry string) (key, error) {
	addr, err := netip.ParseAddr(entry)
	if err != nil {
		return key{}, fmt.Errorf("%.64q is not an address", entry)
	}
	return addrKey(normal(addr)), nil
}
