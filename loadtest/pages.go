package loadtest

import (
	"bytes"
	"fmt"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The part of an [Origin] that is meant for people.
const (
	// SlowPath answers after SlowDelay, and may be stored for a minute.
	SlowPath  = "/slow"
	SlowDelay = 3 * time.Second

	// ClockPath tells the time and is fresh for a second, ClockNowPath must not
	// be stored at all.
	ClockPath    = "/clock"
	ClockNowPath = "/clock/now"

	// Pages is the number of pages, /pages/1 and on; each has images of its own.
	Pages         = 6
	imagesPerPage = 3

	// MissingPath is 404, as is everything that is not listed on the index.
	MissingPath = "/missing"
)

// PagePath returns the path of page n, 1 to [Pages].
func PagePath(n int) string { return "/pages/" + strconv.Itoa(n) }

// ImagePath returns the path of image n, 1 to [Pages] * 3.
func ImagePath(n int) string { return "/images/" + strconv.Itoa(n) + ".png" }

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fafaf7 }
nav a { margin-right: .8rem } img { width: 160px; height: 100px; border-radius: 6px; margin-right: .5rem } code { background: #eee; padding: 0 .3em }
</style>
<h1>{{.Title}}</h1>
<nav><a href="/">Home</a>{{range .Pages}}<a href="{{.}}">{{.}}</a>{{end}}</nav>
<p>{{.Text}}</p>
{{range .Images}}<img src="{{.}}" alt="a pattern" width="160" height="100">{{end}}
<p>Made by the origin at {{.Made}}. When this stays the same on reload, a cache answered.</p>
<p>Also here: <a href="/slow">a slow answer</a>, <a href="/clock">a clock that may be one second late</a>,
<a href="/clock/now">a clock that may not be stored</a>, <a href="/missing">a page that does not exist</a>.</p>
</html>
`))

type page struct {
	Title, Text, Made string
	Pages, Images     []string
}

func (o *Origin) serveIndex(w http.ResponseWriter, _ *http.Request) {
	o.count(ClassPage)
	p := page{Title: "A sample origin", Text: "The pages and images of this site may be stored for a minute."}
	for i := 1; i <= Pages; i++ {
		p.Images = append(p.Images, ImagePath((i-1)*imagesPerPage+1))
	}
	writePage(w, p)
}

func (o *Origin) servePage(w http.ResponseWriter, r *http.Request) {
	n, ok := number(r.PathValue("n"), Pages)
	if !ok {
		o.serveAbsent(w, r)
		return
	}
	o.count(ClassPage)
	p := page{Title: fmt.Sprintf("Page %d", n), Text: "Look at the Cache-Status field of this answer, and of its images."}
	for i := 1; i <= imagesPerPage; i++ {
		p.Images = append(p.Images, ImagePath((n-1)*imagesPerPage+i))
	}
	writePage(w, p)
}

// number parses 1 to limit, written without signs and zeros in front.
func number(s string, limit int) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= limit && strconv.Itoa(n) == s
}

func writePage(w http.ResponseWriter, p page) {
	p.Made = time.Now().UTC().Format("15:04:05.000")
	for i := 1; i <= Pages; i++ {
		p.Pages = append(p.Pages, PagePath(i))
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=60, stale-while-revalidate=30")
	h.Set("Surrogate-Key", "pages")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.Write(b.Bytes())
}

func (o *Origin) serveImage(w http.ResponseWriter, r *http.Request) {
	name, isPNG := strings.CutSuffix(r.PathValue("file"), ".png")
	n, ok := number(name, Pages*imagesPerPage)
	if !isPNG || !ok {
		o.serveAbsent(w, r)
		return
	}
	o.count(ClassImage)
	var b bytes.Buffer
	if err := png.Encode(&b, pattern(n)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "image/png")
	h.Set("Cache-Control", "public, max-age=60")
	h.Set("Surrogate-Key", "images")
	h.Set("ETag", fmt.Sprintf(`"image-%d"`, n))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
}

// pattern draws two waves in colours that depend on n.
func pattern(n int) image.Image {
	const w, h = 320, 200
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	f := float64(n)
	for y := range h {
		for x := range w {
			a := math.Sin(float64(x)/(20+f) + f)
			b := math.Cos(float64(y)/(15+f) - float64(x)/60)
			shade := func(phase float64) uint8 { return uint8(128 + 100*math.Sin(a+b+f*1.7+phase)) }
			img.SetRGBA(x, y, color.RGBA{shade(0), shade(2), shade(4), 255})
		}
	}
	return img
}

func (o *Origin) serveSlow(w http.ResponseWriter, r *http.Request) {
	o.count(ClassSlow)
	if !hold(r, SlowDelay) {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=60")
	fmt.Fprintf(w, "This took the origin %v. It was ready at %s.\n", SlowDelay, time.Now().UTC().Format("15:04:05.000"))
}

func (o *Origin) serveClock(w http.ResponseWriter, r *http.Request) {
	o.count(ClassClock)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if r.URL.Path == ClockNowPath {
		h.Set("Cache-Control", "no-store")
	} else {
		h.Set("Cache-Control", "public, max-age=1")
	}
	fmt.Fprintln(w, time.Now().UTC().Format(time.RFC3339Nano))
}
