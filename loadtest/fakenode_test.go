package loadtest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// fakePrefix begins the names under which the test binary acts as something
// else: a node with the given fault ("fake-ok" for none), or a program that
// starts a fleet.
const fakePrefix = "fake-"

func TestMain(m *testing.M) {
	switch fault, ok := strings.CutPrefix(filepath.Base(os.Args[0]), fakePrefix); {
	case !ok:
		// Runs wait most of their time, for a schedule or for replicas to stand
		// still: as many as the machine has cores would leave it idle.
		flag.Parse()
		if set := flag.Lookup("test.parallel"); set.Value.String() == set.DefValue {
			set.Value.Set(strconv.Itoa(max(runtime.GOMAXPROCS(0), 6)))
		}
		os.Exit(m.Run())
	case fault == "parent":
		runFakeParent()
	case slices.Equal(os.Args[1:], workerArgs()):
		if fault == "workerless" {
			log.Fatal("no worker here")
		}
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
	case fault == "bare":
		runBareServer()
	default:
		runFakeNode(fault)
	}
}

// fake returns a program that acts as a node with the given fault.
func fake(t *testing.T, fault string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), fakePrefix+fault)
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// runFakeParent starts a fleet, prints the process ids and waits to be killed.
func runFakeParent() {
	node := filepath.Join(filepath.Dir(os.Args[0]), fakePrefix+"ok")
	f, err := StartFleet(context.Background(), FleetConfig{Binary: node, Nodes: 2, Origin: "http://127.0.0.1:1"})
	if err != nil {
		log.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode([]int{f.Members[0].Pid, f.Members[1].Pid})
	io.Copy(io.Discard, os.Stdin)
}

// fakeNode keeps every answer of its origin, asks nobody, and counts as a node
// would whose filters never say maybe.
type fakeNode struct {
	cfg   nodeFile
	fault string

	mu        sync.Mutex
	store     map[string][]byte
	hits      int
	misses    int
	origin2xx int
	origin4xx int
	purges    int
}

func runFakeNode(fault string) {
	data, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		log.Fatal(err)
	}
	n := &fakeNode{fault: fault, store: map[string][]byte{}}
	if err := yaml.UnmarshalWithOptions(data, &n.cfg, yaml.Strict()); err != nil {
		log.Fatal(err)
	}
	switch fault {
	case "dies":
		fmt.Fprintln(os.Stderr, "level=ERROR msg=\"cannot go on\"")
		os.Exit(3)
	case "garbage":
		fmt.Println("hello")
	case "misnamed":
		n.cfg.Name = "someone"
	case "silent":
		select {}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	stop := make(chan os.Signal, 1)
	if fault != "stubborn" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	client, admin := listen(n.cfg.Listen.Address), listen(n.cfg.Admin.Address)
	go http.Serve(client, n)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", n.metrics)
	mux.HandleFunc("POST /v1/purge", n.purge)
	go http.Serve(admin, mux)
	json.NewEncoder(os.Stdout).Encode(readyEvent{
		Event: "ready", Name: n.cfg.Name, Client: client.Addr().String(), Admin: admin.Addr().String(),
		Gossip: "127.0.0.1:1", Peer: "127.0.0.1:1", Pid: os.Getpid(),
	})
	<-stop
	os.Exit(0)
}

func listen(addr string) net.Listener {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	return ln
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	body, ok := n.store[r.URL.Path]
	if ok {
		n.hits++
	} else {
		n.misses++
	}
	if n.fault == "dies-early" && n.cfg.Name == "edge-b" && n.hits+n.misses == 20 {
		fmt.Fprintln(os.Stderr, "panic: so soon")
		os.Exit(2)
	}
	if n.fault == "dies-later" && n.cfg.Name == "edge-b" && n.hits+n.misses == 300 {
		fmt.Fprintln(os.Stderr, "panic: what now")
		os.Exit(2)
	}
	n.mu.Unlock()
	if ok {
		w.Header().Set("Cache-Status", n.cfg.Name+"; hit; ttl=9")
		w.Write(body)
		return
	}
	resp, err := http.Get(n.cfg.Sites[0].Origin.URLs[0] + r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	body, _ = io.ReadAll(resp.Body)
	if n.fault == "corrupts" && len(body) > 0 && strings.HasSuffix(r.URL.Path, "7") {
		body[len(body)-1] ^= 1
	}
	n.mu.Lock()
	if resp.StatusCode == http.StatusOK {
		n.store[r.URL.Path] = body
		n.origin2xx++
	} else {
		n.origin4xx++
	}
	n.mu.Unlock()
	w.Header().Set("Cache-Status", n.cfg.Name+"; fwd=uri-miss; detail=origin")
	w.WriteHeader(resp.StatusCode)
	w.Write(body)
}

func (n *fakeNode) metrics(w http.ResponseWriter, _ *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(os.Args[len(os.Args)-1]), "*.yaml"))
	members := len(files)
	misses, negative, unknown, rpcs := n.misses, n.misses, 0, 0
	if n.cfg.Filter != nil && n.cfg.Filter.Enabled != nil {
		negative, unknown, rpcs = 0, n.misses, n.misses*(members-1)
		if n.cfg.Filter.Ask == "none" {
			rpcs = 0
		}
	}
	if n.fault == "miscounts" {
		misses /= 2
	}
	fmt.Fprintf(w, `# HELP edged_members Members by state.
# TYPE edged_members gauge
edged_members{state="alive"} %d
edged_members{state="failed"} 0
edged_requests_total{site="sample",result="hit"} %d
edged_requests_total{site="sample",result="miss"} %d
edged_origin_requests_total{site="sample",result="2xx"} %d
edged_origin_requests_total{site="sample",result="4xx"} %d
edged_bloom_negative_total{partition="default"} %d
edged_bloom_positive_hit_total{partition="default"} 0
edged_bloom_positive_miss_total{partition="default"} 0
edged_bloom_unknown_total{partition="default"} %d
edged_filter_expected_false_positive_rate{partition="default"} 0.001
edged_purges_total{kind="url",result="complete"} %d
edged_peer_rpcs_total{peer="x",result="miss"} %d
edged_store_keys{tier="memory",partition="default"} %d
edged_store_key_bytes{tier="memory",partition="default"} %d
edged_store_key_changes_total{tier="memory",change="added",partition="default"} %d
process_cpu_seconds_total 1.5
process_start_time_seconds %d
`, members, n.hits, misses, n.origin2xx, n.origin4xx, negative, unknown, n.purges, rpcs, len(n.store), 30*len(n.store), len(n.store), os.Getpid())
	for i := range members - 1 {
		fmt.Fprintf(w, "edged_replica_state{peer=\"p%d\",state=\"live\"} 1\n", i)
		fmt.Fprintf(w, "edged_replica_state{peer=\"p%d\",state=\"gap\"} 0\n", i)
	}
}

func (n *fakeNode) purge(w http.ResponseWriter, r *http.Request) {
	var p struct {
		URLs []string `json:"urls"`
	}
	json.NewDecoder(r.Body).Decode(&p)
	n.mu.Lock()
	n.purges += len(p.URLs)
	for _, u := range p.URLs {
		delete(n.store, strings.TrimPrefix(u, "http://"+defaultHost))
	}
	n.mu.Unlock()
	io.WriteString(w, `{"id":"1","members":1,"acked":1,"missing":[]}`)
}

// waitFor polls until ok, for at most ten seconds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
