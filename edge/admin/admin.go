// Package admin is the admin API of a node and its status page.
//
// A [Node] is the set of functions that the API shows and steers; the node
// hands them over, so this package imports nothing of it. [New] makes the
// handler of the admin listener.
//
// Who may ask. Health is open. Everything else needs the token when there is
// one: as "Authorization: Bearer TOKEN", or, so that a browser can show the
// page, as the password of HTTP Basic with any user name. Without a token
// whoever reaches the listener may do everything, which is why it is on
// loopback by default. A page from elsewhere can't act through an operator's
// browser: what changes something is refused across origins, and takes JSON.
//
// Errors are JSON: {"error": "what was wrong and what was expected"}.
package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
)

// Config says what the API shows and who may see it.
type Config struct {
	Node Node
	// Token, when set, must come with every request but health. Empty: whoever
	// reaches the listener may do everything.
	Token string
	// Logger receives what goes wrong inside; nil discards it.
	Logger *slog.Logger
}

// api is the handler of the admin listener.
type api struct {
	node  Node
	log   *slog.Logger
	token [sha256.Size]byte
	open  bool // there is no token
}

// New returns the handler of the admin listener. It is safe for concurrent
// use, starts nothing and needs no closing.
func New(cfg Config) http.Handler {
	a := &api{node: cfg.Node, log: cfg.Logger, token: sha256.Sum256([]byte(cfg.Token)), open: cfg.Token == ""}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}

	mux := http.NewServeMux()
	health := func(path string, check func() error) {
		mux.Handle(path, only(http.MethodGet, healthHandler(check)))
	}
	health("/livez", a.node.Live)
	health("/readyz", a.node.Ready)

	guarded := func(method, path string, h http.HandlerFunc) { mux.Handle(path, a.guard(only(method, h))) }
	guarded(http.MethodGet, "/{$}", page("index.html"))
	for _, name := range []string{"style.css", "icon.svg", "format.js", "draw.js", "app.js", "explain.js"} {
		guarded(http.MethodGet, "/web/"+name, page(name))
	}
	guarded(http.MethodGet, "/metrics", a.metrics)
	guarded(http.MethodGet, "/v1/cluster", a.cluster)
	guarded(http.MethodGet, "/v1/stream", a.stream)
	guarded(http.MethodGet, "/v1/explain", a.explain)
	guarded(http.MethodGet, "/v1/keys", a.keys)
	guarded(http.MethodGet, "/v1/tags", a.tags)
	guarded(http.MethodPost, "/v1/purge", a.purge)
	guarded(http.MethodGet, "/v1/purge/{id}", a.progress)
	guarded(http.MethodPost, "/service/{service}/purge/{key...}", a.fastlyKey)
	guarded(http.MethodPost, "/service/{service}/purge", a.fastlyKeys)
	guarded(http.MethodPost, "/service/{service}/purge_all", a.fastlyAll)
	guarded(http.MethodPost, "/v1/created", a.created)
	guarded(http.MethodPost, "/v1/catalog/{site}", a.catalog)
	guarded(http.MethodPost, "/v1/warm", a.warm)
	guarded(http.MethodPost, "/v1/reload", a.reload)
	guarded(http.MethodPost, "/v1/drain", a.drain)
	mux.Handle("/", a.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})))
	return mux
}

// guard lets requests through that carry the token, and none that another
// site's page makes a browser send to change something.
func (a *api) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.authorized(r) {
			// Basic first: browsers ask their user for it.
			w.Header()["Www-Authenticate"] = []string{`Basic realm="edged admin", charset="UTF-8"`, `Bearer realm="edged admin"`}
			fail(w, http.StatusUnauthorized, "want the token of this node, as Authorization: Bearer TOKEN")
			return
		}
		if err := origins.Check(r); err != nil {
			fail(w, http.StatusForbidden, "refused: a page of another origin sent this")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *api) authorized(r *http.Request) bool {
	if a.open {
		return true
	}
	_, token, ok := r.BasicAuth()
	if !ok {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token, ok = strings.TrimLeft(rest, " "), strings.EqualFold(scheme, "Bearer")
	}
	if key := r.Header.Get("Fastly-Key"); !ok && key != "" {
		token, ok = key, true
	}
	// Of equal length whatever was sent, so the comparison tells nothing.
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && ok
}

// only refuses other methods than the one; HEAD goes with GET.
func only(method string, next http.Handler) http.Handler {
	allow := method
	if method == http.MethodGet {
		allow = "GET, HEAD"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {
			w.Header().Set("Allow", allow)
			fail(w, http.StatusMethodNotAllowed, r.URL.Path+" takes "+allow+", not "+r.Method)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// healthHandler answers a probe in one line of text.
func healthHandler(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, "ok"
		if check != nil {
			if err := check(); err != nil {
				status, text = http.StatusServiceUnavailable, err.Error()
			}
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		// An error here is the prober's to notice.
		_, _ = w.Write([]byte(text + "\n"))
	}
}
