package store_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/cespare/xxhash/v2"

	"edged/edge/store"
)

func Example() {
	s, err := store.New(store.Config{Partitions: []store.PartitionConfig{{Name: "default", MaxBytes: 64 << 20}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	url := "http://example.com/"
	k := &store.Key{URL: url, Hash: xxhash.Sum64String(url)}

	r := &store.Response{
		Head: "Content-Type: text/plain\r\n",
		Body: store.NewBody([][]byte{[]byte("hello "), []byte("world\n")}),
		Tags: []string{"greetings"},
	}
	r.Compact()
	s.Put(0, k, r)

	for _, r := range s.Get(0, k) {
		s.Hit(r)
		fmt.Println(strings.TrimSpace(r.Head))
		r.Body.WriteTo(os.Stdout)
	}

	// A soft purge by tag: the response stays, with other data to decide by.
	type stale struct{}
	done := s.Purge(func(url string, r *store.Response) *store.Response {
		for _, t := range r.Tags {
			if t == "greetings" {
				return r.With(stale{}, 0)
			}
		}
		return r
	})
	fmt.Printf("%+v %T\n", done, s.Get(0, k)[0].Meta)

	// Output:
	// Content-Type: text/plain
	// hello world
	// {Dropped:0 Marked:1} store_test.stale
}
