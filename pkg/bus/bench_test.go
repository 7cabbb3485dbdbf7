package bus

import (
	"testing"

	"github.com/ccnq/ccnq/pkg/bus/embed"
)

// BenchmarkRequest is one request and its reply within the process, asked one
// after the other and by many at once.
func BenchmarkRequest(b *testing.B) {
	s := server(b, embed.Options{})
	serve(b, connectTo(b, s), pending)
	c := connectTo(b, s)
	ctx := deadline(b)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ask(ctx, c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := ask(ctx, c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
