package negative

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A million entries under keys of 48 bytes, in 100 MB.
func million(b *testing.B) (*Cache, []string, []string, time.Time) {
	c := New(Config{CapacityBytes: 100e6})
	now := time.Now()
	keys := make([]string, 1e6)
	absent := make([]string, 1e6)
	for i := range keys {
		keys[i] = fmt.Sprintf("https://www.example.com/item/%08d/index.html", i)
		absent[i] = fmt.Sprintf("https://www.example.com/none/%08d/index.html", i)
	}
	// The benchmarks walk through the keys in order, as fast as memory allows,
	// and so meet the records in no order.
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(keys)) {
		if ok, reason := c.Put(keys[i], nobody, gone("Content-Type: text/html\r\n", "<h1>Not Found</h1>", now, time.Hour), now); !ok {
			b.Fatal(reason)
		}
	}
	st := c.Stats()
	if st.Forgotten > 0 {
		b.Fatalf("%d of a million entries did not fit into %d bytes", st.Forgotten, st.LimitBytes)
	}
	b.Logf("%.1f bytes an entry", float64(st.Bytes)/float64(st.Entries))
	return c, keys, absent, now
}

// README.md has what it measured.
func BenchmarkCache_Get(b *testing.B) {
	c, keys, absent, now := million(b)
	for _, bb := range []struct {
		name string
		keys []string
		want bool
	}{{"hit", keys, true}, {"miss", absent, false}} {
		for _, n := range []int{1000, 1e6} {
			b.Run(fmt.Sprintf("%s/n=%d", bb.name, n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if i++; i == n {
						i = 0
					}
					if _, ok := c.Get(bb.keys[i], now); ok != bb.want {
						b.Fatal(ok)
					}
				}
			})
		}
	}
	// As clients ask: by Zipf, so that most are for what has just been read.
	for _, exponent := range []float64{1.1, 1.3} {
		b.Run(fmt.Sprintf("hit/n=1000000/zipf=%g", exponent), func(b *testing.B) {
			z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), exponent, 10, uint64(len(keys)-1))
			asked := make([]string, 1<<20)
			for i := range asked {
				asked[i] = strings.Clone(keys[z.Uint64()]) // a request brings its key along
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 1) % len(asked)
				if _, ok := c.Get(asked[i], now); !ok {
					b.Fatal(ok)
				}
			}
		})
	}
}

func BenchmarkCache_Put(b *testing.B) {
	c, _, _, now := million(b)
	e := gone("Content-Type: text/html\r\n", "<h1>Not Found</h1>", now, time.Hour)
	key := []byte("https://www.example.com/item/00000000/index.html")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		for i, v := 36, n; i > 28; i, v = i-1, v/10 {
			key[i] = byte('a' + v%10)
		}
		c.Put(string(key), nobody, e, now)
	}
}

// Same machine: present 100 ns, absent 170 ns.
func BenchmarkCatalog_Contains(b *testing.B) {
	c := newCatalog(b, CatalogConfig{})
	var list bytes.Buffer
	keys := make([]string, 1e6)
	absent := make([]string, 1e6)
	for i := range keys {
		keys[i] = fmt.Sprintf("/item/%08d/index.html", i)
		absent[i] = fmt.Sprintf("/none/%08d/index.html", i)
		list.WriteString(keys[i] + "\n")
	}
	if err := c.Load(&list, time.Now()); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		keys []string
	}{{"present", keys}, {"absent", absent}} {
		b.Run(bb.name+"/n=1e6", func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i++; i == len(bb.keys) {
					i = 0
				}
				c.Contains(bb.keys[i])
			}
		})
	}
}

// Ten million plain lines, 350 MB of them, from a reader that makes them as
// they are asked for: see README.md.
func BenchmarkCatalog_LoadTenMillion(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := newCatalog(b, CatalogConfig{})
		if err := c.Load(&pathList{n: 10_000_000}, time.Now()); err != nil {
			b.Fatal(err)
		}
		st := c.Stats(time.Now())
		b.ReportMetric(float64(st.Bytes)/1e6, "MB")
	}
}

// pathList is a list of n paths of 34 bytes, made while it is read.
type pathList struct {
	n    int
	buf  [40]byte
	line []byte // what of buf is still to come
}

func (p *pathList) Read(b []byte) (int, error) {
	k := 0
	for {
		m := copy(b[k:], p.line)
		k, p.line = k+m, p.line[m:]
		if k == len(b) {
			return k, nil
		}
		if p.n == 0 {
			return k, io.EOF
		}
		p.n--
		p.line = append(p.buf[:0], "/item/00000000/of-the-catalog.html\n"...)
		for i, v := 13, p.n; i > 5; i, v = i-1, v/10 {
			p.line[i] = byte('0' + v%10)
		}
	}
}

// Same machine: a million plain lines 0.17 s, JSON lines 0.23 s.
func BenchmarkCatalog_Load(b *testing.B) {
	for _, bb := range []struct{ name, format string }{{"plain", "/item/%08d/index.html\n"}, {"json", "{\"path\":\"/item/%08d/index.html\"}\n"}} {
		b.Run(bb.name+"/n=1e6", func(b *testing.B) {
			c := newCatalog(b, CatalogConfig{})
			var list bytes.Buffer
			for i := range int(1e6) {
				fmt.Fprintf(&list, bb.format, i)
			}
			for b.Loop() {
				if err := c.Load(bytes.NewReader(list.Bytes()), time.Now()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.Stats(time.Now()).Bytes)/1e6, "B/path")
		})
	}
}
