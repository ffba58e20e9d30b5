//go:build browser

package loadtest

import (
	"context"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var shotDir = flag.String("shots", "", "keep the report's pages and screenshots in this directory")

// browser starts a headless Chromium that lives as long as the test. Everything
// that it has to complain about, and all that it fetches, goes to told.
func browser(t *testing.T, told func(string)) context.Context {
	// The profile is chromedp's to remove: a process of the browser may write to
	// it after the browser has ended, which makes t.TempDir fail the test.
	opts := append([]chromedp.ExecAllocatorOption{}, chromedp.NoFirstRun, chromedp.Headless, chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("hide-scrollbars", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // lets it end by itself
			t.Log("closing the browser:", err)
		}
		cancel()
	})
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			told("exception: " + e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			told("log: " + e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file://") {
				told("fetches " + e.Request.URL)
			}
		}
	})
	if err := chromedp.Run(ctx, network.Enable(), log.Enable()); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// smallReport is one of a minute and three nodes, with faults.
func smallReport() *Report {
	g := Group{
		Filters: true, Requests: 60_000, Responses: 60_000, counted: true, DurationS: 60, Rate: 1000, HitRatio: 0.5,
		LatencyMS: Latency{0.4, 1.2, 4, 12, 80, 0.7}, Sources: map[string]int64{fromHit: 30_000, fromPeer: 9_000, fromOrigin: 21_000},
		Bloom: Bloom{20_000, 9_000, 30, 4}, OriginCounts: map[string]int64{ClassKey: 21_000}, OriginRequests: 21_000,
		Events: []Event{{10, 18, "kill edge-b for 8s", true}, {25, 28, "pause edge-c for 3s", true}, {S: 40, Text: "Node edge-a died: signal: killed"}},
	}
	for i := range 60 {
		wave := 1 + 0.3*math.Sin(float64(i)/5)
		skip, observed, expected := 0.9*wave/1.3, 0.002*wave, 0.0015
		p := Point{S: float64(i + 1), Responses: 1000, P50MS: 0.4 * wave, P99MS: 4 * wave, SkipRatio: &skip, ObservedRate: &observed, ExpectedRate: &expected, Origin: int64(350 * wave),
			Sources: map[string]int64{fromHit: int64(500 * wave), fromPeer: 150, fromOrigin: int64(350 * wave)}}
		for j := range 3 {
			p.Nodes = append(p.Nodes, NodePoint{
				Bloom: Bloom{int64(110 * wave), 50, 1, 0}, PeerRPCs: 50, OriginRequests: int64(115 * wave), GossipSentBytes: int64(4000 * wave),
				CPUSeconds: 0.1*wave + 0.02*float64(j), ResidentBytes: int64(60+i/2+j) << 20, FilterFill: 0.1 + 0.002*float64(i), Unread: j == 1 && i > 10 && i < 18,
			})
		}
		g.Series = append(g.Series, p)
	}
	for _, q := range []float64{0, .5, .9, .99, .999, 1} {
		g.Distribution = append(g.Distribution, LatencyPoint{q, 0.2 + 5*q*q*q*q})
	}
	for i := range 3 {
		g.Nodes = append(g.Nodes, NodeReport{Name: nodeName(i), Requests: 20_000, HitRatio: 0.5, Bloom: Bloom{6_666, 3_000, 10, 1}, PeerRPCs: 3_010, OriginRequests: 7_000, CPUSeconds: 7, ResidentBytes: 80 << 20})
	}
	s := steady()
	return &Report{Group: g, Scenario: s, Version: "v0", GoVersion: "go1", Platform: "linux/amd64", CPUs: 2, Command: []string{"edged", "loadtest"}, Broken: []string{}}
}

func TestReport_InABrowser(t *testing.T) {
	dir := *shotDir
	if dir == "" {
		dir = t.TempDir()
	}
	for name, r := range map[string]*Report{"small": smallReport(), "big": bigReport()} {
		file := filepath.Join(dir, name+".html")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.writeHTML(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		groups := len(r.groups())
		t.Run(name, func(t *testing.T) {
			ctx := browser(t, func(text string) { t.Error(text) })
			if err := chromedp.Run(ctx, chromedp.Navigate("file://"+file)); err != nil {
				t.Fatal(err)
			}
			for _, look := range []struct {
				name   string
				width  int64
				media  string
				scheme string
			}{{"wide-light", 1280, "", "light"}, {"narrow-light", 400, "", "light"}, {"narrow-dark", 400, "", "dark"}, {"print", 794, "print", "dark"}} {
				var shot []byte
				var got struct {
					Overflow float64
					Charts   int
					Undrawn  []string
					Text     float64
					Fg, Bg   string
					CutOff   []string
				}
				err := chromedp.Run(ctx,
					chromedp.EmulateViewport(look.width, 900),
					emulation.SetEmulatedMedia().WithMedia(look.media).WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}),
					chromedp.Evaluate(lookAtPage, &got),
					chromedp.FullScreenshot(&shot, 90),
				)
				if err != nil {
					t.Fatalf("%s: %v", look.name, err)
				}
				if *shotDir != "" {
					if err := os.WriteFile(filepath.Join(dir, name+"-"+look.name+".jpg"), shot, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if got.Overflow > 0 {
					t.Errorf("%s: the page is %v pixels wider than the window", look.name, got.Overflow)
				}
				if want := 1 + 13*groups; got.Charts != want || len(got.Undrawn) > 0 {
					t.Errorf("%s: %d plots, want %d; not drawn: %q", look.name, got.Charts, want, got.Undrawn)
				}
				if len(got.CutOff) > 0 {
					t.Errorf("%s: cut off: %q", look.name, got.CutOff)
				}
				if got.Text < 9 {
					t.Errorf("%s: the smallest text of the plots is %.1f pixels high", look.name, got.Text)
				}
				if dark := look.scheme == "dark" && look.media == ""; dark == (got.Bg == "rgb(255, 255, 255)") {
					t.Errorf("%s: %s on %s", look.name, got.Fg, got.Bg)
				}
			}
		})
	}
}

// lookAtPage measures the page: how much wider than the window it is, which
// plots have no line or bar of any size, how high the text in them is on the
// screen, and which elements stick out of the window.
const lookAtPage = `(() => {
	const width = document.documentElement.clientWidth, figures = [...document.querySelectorAll("figure.chart")];
	const drawn = f => [...f.querySelectorAll("polyline, rect:not(.band)")].some(e => { const b = e.getBoundingClientRect(); return b.width > 0 && getComputedStyle(e).color !== "" });
	const body = getComputedStyle(document.body);
	return {
		Overflow: document.documentElement.scrollWidth - width,
		Charts: figures.length,
		Undrawn: figures.filter(f => !drawn(f)).map(f => f.querySelector("figcaption").textContent),
		Text: Math.min(...figures.map(f => { const s = f.querySelector("svg"); return s ? 13 * s.getBoundingClientRect().width / s.viewBox.baseVal.width : 99 })),
		Fg: body.color, Bg: body.backgroundColor,
		CutOff: [...document.querySelectorAll("td, th, p, figcaption, svg, pre")].filter(e => e.getBoundingClientRect().right > width + 1).map(e => e.textContent.slice(0, 60)),
	};
})()`
