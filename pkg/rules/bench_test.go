package rules

import "testing"

// benchRequests are requests of a browser and of a scraper.
var benchRequests = map[string][]string{
	"/reports/2024/annual.report.v2.final.pdf": {
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
		"Accept: */*",
	},
	"/dataset/a-long-name/resource/5b3c7d10-0000-4000-8000-1234567890ab?page=2&sort=name&preview=1": {
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
		"Accept-Language: en",
		"Cookie: theme=dark; _ga=GA1.2.1234567890.1234567890; lang=en; consent=yes",
	},
	"/static/app/main.3f2a1b.js": {
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
		"Cookie: theme=dark; session=0123456789abcdef",
	},
}

func BenchmarkMatch(b *testing.B) {
	for name, set := range examples(b) {
		for target, lines := range benchRequests {
			path, _ := nextPair(target)
			b.Run(name+path, func(b *testing.B) {
				r := request(b, target, lines...)
				b.ReportAllocs()
				for b.Loop() {
					set.Match(r, OnTimeoutMatch)
				}
			})
		}
	}
}

// BenchmarkMatchRegexp has patterns that RE2 runs.
func BenchmarkMatchRegexp(b *testing.B) {
	set := mustParse(b, `[[
		{"target":"path","matchType":"regex","value":"^/dataset/[^/]+/resource/[0-9a-f-]{36}"},
		{"target":"header","name":"user-agent","matchType":"regex","value":"(?i)(bot|crawl|spider)"}
	]]`)
	for target, lines := range benchRequests {
		path, _ := nextPair(target)
		b.Run(path, func(b *testing.B) {
			r := request(b, target, lines...)
			b.ReportAllocs()
			for b.Loop() {
				set.Match(r, OnTimeoutMatch)
			}
		})
	}
}

// BenchmarkMatchSlow is the worst that a request can do to a backtracking
// pattern.
func BenchmarkMatchSlow(b *testing.B) {
	set := mustParse(b, slowRules)
	r := request(b, slowTarget)
	b.ReportAllocs()
	for b.Loop() {
		set.Match(r, OnTimeoutMatch)
	}
}
