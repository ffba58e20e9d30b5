//go:build browser

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A tab is one page in a headless Chromium, which is started for it with an
// empty profile. What the page does wrong is noted: script errors, and what
// its policy refuses.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	wrongs []string
}

func openTab(t *testing.T) *tab {
	t.Helper()
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	ctx, stop := chromedp.NewExecAllocator(ctx, opts...)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // lets the browser end by itself
			t.Log("closing the browser:", err)
		}
		closeTab()
		stop()
		cancel()
	})
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.wrongs = append(b.wrongs, ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			// Network errors are what a dead node brings; the page shows them.
			if ev.Entry.Source != log.SourceNetwork {
				b.wrongs = append(b.wrongs, string(ev.Entry.Source)+": "+ev.Entry.Text)
			}
		case *runtime.EventConsoleAPICalled:
			if ev.Type == runtime.APITypeError || ev.Type == runtime.APITypeWarning {
				for _, a := range ev.Args {
					b.wrongs = append(b.wrongs, fmt.Sprintf("console: %s", a.Value))
				}
			}
		}
	})
	b.run(log.Enable())
	return b
}

// chromium is the browser's binary.
func chromium(t *testing.T) string {
	t.Helper()
	for _, file := range []string{"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"} {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	t.Fatal("there is no Chromium: on Debian, apt-get install chromium")
	return ""
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what a script's expression comes to, as text.
func (b *tab) eval(script string) string {
	b.t.Helper()
	var s string
	b.run(chromedp.Evaluate("String("+script+")", &s))
	return s
}

// until waits until the expression is true, and returns how long that took.
func (b *tab) until(script string) time.Duration {
	b.t.Helper()
	began := time.Now()
	eventually(b.t, func() error {
		if got := b.eval(script); got != "true" {
			return fmt.Errorf("%s is %s; the page says\n%s", script, got, b.eval("document.querySelector('main').innerText"))
		}
		return nil
	})
	return time.Since(began)
}

// innocent fails the test when the page did something wrong.
func (b *tab) innocent() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrongs {
		b.t.Errorf("the page: %s", w)
	}
}

// looks are what a page is looked at in.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"desktop-light", 1280, 900, "light"}, {"desktop-dark", 1280, 900, "dark"},
	{"laptop-light", 1180, 800, "light"}, {"laptop-dark", 1000, 800, "dark"},
	{"phone-light", 400, 800, "light"}, {"phone-dark", 400, 800, "dark"},
}

// screenshots looks at the page in each look: nothing may reach beyond its
// width. With EDGED_SCREENSHOTS set the pictures stay in that folder.
func (b *tab) screenshots(name string) {
	b.t.Helper()
	dir, keep := os.LookupEnv("EDGED_SCREENSHOTS")
	for _, l := range looks {
		b.run(chromedp.EmulateViewport(l.width, l.height),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}))
		// What is wide scrolls in a box of its own.
		if w := b.eval("document.documentElement.scrollWidth"); w != strconv.FormatInt(l.width, 10) {
			b.t.Errorf("%s, %s: the page is %s wide in a window of %d: %s", name, l.name, w, l.width, b.eval(
				`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map((e) => e.tagName + "#" + e.id + "." + e.className).slice(0, 5)`))
		}
		// On a desktop nothing of the members is out of sight.
		if over := b.eval(`((box) => box.scrollWidth - box.clientWidth)(document.getElementById("members").closest(".scroll"))`); l.width >= 1000 && over != "0" {
			b.t.Errorf("%s, %s: %s pixels of the members' table are out of sight", name, l.name, over)
		}
		if !keep {
			continue
		}
		var png []byte
		b.run(chromedp.FullScreenshot(&png, 100))
		if err := os.WriteFile(filepath.Join(dir, name+"-"+l.name+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.run(chromedp.EmulateViewport(1280, 900))
}

// watchedCluster is three nodes on loopback, with traffic on them until the
// test ends: most of it for what nobody has.
func watchedCluster(t *testing.T) []*child {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/absent/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Cache-Tag", "demo")
		io.WriteString(w, strings.Repeat("x", 2000))
	}))
	t.Cleanup(origin.Close)
	var nodes []*child
	for i := range 3 {
		args := []string{
			"--origin", origin.URL, "--name", "edge-" + string(rune('a'+i)), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--gossip", "127.0.0.1:0", "--peer", "127.0.0.1:0",
		}
		if i > 0 {
			args = append(args, "--join", nodes[0].ready.Gossip)
		}
		nodes = append(nodes, startNode(t, args...))
	}

	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: 5 * time.Second}
	var asked atomic.Int64
	for _, n := range nodes {
		all.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				path, i := "", asked.Add(1)
				switch {
				case i%10 < 5:
					path = fmt.Sprintf("/absent/%d", i)
				default:
					path = fmt.Sprintf("/page/%d", i*i%97)
				}
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ready.Client+path, nil)
				r.Host = "www.example.com"
				if resp, err := client.Do(r); err == nil { // one of the nodes is killed
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	return nodes
}

const (
	shown = `document.getElementById(%q).textContent`
	cell  = `[...document.querySelectorAll("#members tr")].find((r) => r.cells[0].textContent.includes(%q))?.cells[%d].textContent`
)

// The page moves while traffic flows, shows a member that is killed within five
// seconds, and explains a request.
func TestPage_live(t *testing.T) {
	nodes := watchedCluster(t)
	b := openTab(t)
	b.run(chromedp.Navigate("http://" + nodes[0].ready.Admin + "/"))

	b.until(`document.getElementById("link").textContent === "all 3 members well"`)
	b.until(`Number(document.getElementById("rps").textContent) > 20`)
	skipped := b.eval(fmt.Sprintf(shown, "skipped"))
	b.until(fmt.Sprintf(shown, "skipped") + " !== " + strconv.Quote(skipped))
	b.until(`document.querySelectorAll("#rps-plot .line, #hits-plot .area, #latency-plot .line, #rpcs-plot .line").length >= 6`)
	// The others speak for themselves, and every replica stands in the matrix.
	b.until(`Number(` + fmt.Sprintf(cell, "edge-c", 3) + `) > 20`)
	b.until(`document.querySelectorAll("#matrix .state.good").length === 6`)
	b.until(`/in use.*Failed0/.test(document.getElementById("origins").textContent)`)

	b.run(chromedp.SendKeys("#url", "http://www.example.com/page/1\r"))
	b.until(`document.getElementById("would").textContent.startsWith("This request would ")`)
	b.until(`document.querySelectorAll("#explanation .steps li").length >= 4`)
	// By script: the page moves under a pointer.
	b.eval(`document.querySelector("#explain summary").click(), document.getElementById("fields").value = "not a field", document.querySelector("#explain button").click()`)
	b.until(`document.getElementById("would").textContent.includes("is not a field")`)
	b.eval(`document.getElementById("fields").value = "", document.querySelector("#explain button").click()`)
	b.until(`document.getElementById("would").className === "would"`)
	b.screenshots("live")

	if err := nodes[2].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := b.until(`document.querySelector("#members tr.failed .state.bad") !== null && document.querySelector("#ring .arc.bad") !== null && document.getElementById("link").className === "bad"`)
	t.Logf("the killed node was red after %v", took)
	if took > 5*time.Second {
		t.Errorf("the killed node was red after %v, want 5 s at most", took)
	}
	b.screenshots("killed")

	// Its own node gone, the page says that it does not move.
	if err := nodes[0].cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until(`!document.getElementById("notice").hidden && document.getElementById("notice").textContent.includes("does not answer")`)
	b.innocent()
}

// Without JavaScript the page says so, and where else to look.
func TestPage_withoutScript(t *testing.T) {
	n := startNode(t, alone("http://127.0.0.1:9")...)
	b := openTab(t)
	b.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate("http://"+n.ready.Admin+"/"))
	var said string
	b.run(chromedp.Text("noscript", &said))
	if !strings.Contains(said, "needs JavaScript") {
		t.Errorf("the page says %q", said)
	}
	b.innocent()
}
