// Package admin is the admin API of a node and its status page.
package admin

import (
	"log/slog"
	"net/http"
)

// Config says what the API shows and who may see it.
type Config struct {
	Node Node
	// Token, when set, must come with every request but health, as
	// "Authorization: Bearer TOKEN". Empty: whoever reaches the listener may
	// do everything.
	Token string
	// Logger receives what goes wrong inside; nil discards it.
	Logger *slog.Logger
}

// New returns the handler of the admin listener.
func New(cfg Config) http.Handler { return http.NotFoundHandler() }
