package gateway

// stage is one step of a request's way.
type stage struct {
	name   string
	decide func(*exchange) Verdict
}

// pipeline is the order of a request's way.
//
//	request ──▶ identity ──▶ denylist ──▶ qos ──▶ queue ──▶ proxy ──▶ origin
//	               │            │          │        │         │
//	               ▼            ▼          ▼        ▼         ▼
//	              400          429        503      429     502, 504
func (g *Gateway) pipeline() []stage {
	return []stage{
		{"identity", g.identify},
		{"denylist", g.checkBlocks},
		{"qos", g.throttle},
		{"queue", g.enqueue},
		{"proxy", g.forward},
	}
}
