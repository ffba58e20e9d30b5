package admin

import (
	"embed"
	"net/http"
	"path"
)

// The page is its files as they are served: no build step, nothing from
// elsewhere.
//
//go:embed web
var web embed.FS

// contentPolicy lets the page load its own script and style, and ask this API;
// nothing else, from nowhere else, and nobody may frame it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page serves one of the embedded files.
func page(name string) http.HandlerFunc {
	body, err := web.ReadFile("web/" + name)
	if err != nil {
		panic(err) // the line above go:embed lacks it
	}
	// Written down, since the types of the machine may differ.
	typ := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", typ)
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		// An error here is the client's to notice.
		_, _ = w.Write(body)
	}
}
