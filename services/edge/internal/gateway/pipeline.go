package gateway

// stage is one step of a request's way.
type stage struct {
	name   string
	decide func(*exchange) Verdict
}

// pipeline is the order of a request's way.
//
//	request ──▶ identity ──▶ denylist ──▶ qos ──▶ cache ──▶ queue ──▶ proxy ──▶ origin
//	               │            │          │        │         │         │
//	               ▼            ▼          ▼        ▼         ▼         ▼
//	              400          429        503    a hit       429     502, 504
//
// Requests that miss and ask for the same thing share one fetch, which goes the
// stages behind the cache for all of them.
func (g *Gateway) pipeline() []stage {
	return []stage{
		{"identity", g.identify},
		{"denylist", g.checkBlocks},
		{"qos", g.throttle},
		{stageOfCache, g.lookUp},
		{"queue", g.enqueue},
		{"proxy", g.forward},
	}
}

const stageOfCache = "cache"

// behindCache are the stages between the cache and the last one, which is the
// origin.
func (g *Gateway) behindCache() []stage {
	last := len(g.stages) - 1
	for i := range g.stages {
		if g.stages[i].name == stageOfCache {
			return g.stages[i+1 : last]
		}
	}
	return nil
}
