package qos

import "math"

// rates are the limits of one kind of actor, in requests per second.
type rates struct{ min, max float64 }

// limit is the limit at a lag ratio. The conversions keep the compiler from
// fusing a multiplication with an addition, which would round differently.
func (r rates) limit(lagRatio float64) float64 {
	return float64((1-lagRatio)*(r.max-r.min)) + r.min
}

// required is how many requests within maxAge ms are needed to judge a key.
func (r rates) required(maxAge float64) float64 {
	return math.Ceil(float64(r.min * (maxAge / 1000)))
}

// overrides are the rates of addresses and subnets that are still served while
// their host has too large a share of the traffic; 0 is none.
type overrides struct{ ip, subnet float64 }

// override is the limits while a host has too large a share of the traffic.
func (r rates) override(limit float64) rates {
	low := min(limit, r.min)
	return rates{min: low, max: max(limit, low)}
}

// capacity is how many of the newest requests of a key must be kept for every
// decision to be what it would be with all of them. With that many within maxAge
// the rate is above every limit, whatever came before; with fewer, all are kept.
func (r rates) capacity(override, maxAge float64) int32 {
	n := math.Floor(max(r.max, r.min, override)*(maxAge/1000)) + 2
	return int32(min(max(n, 1), math.MaxInt32))
}
