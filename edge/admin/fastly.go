package admin

import (
	"net/http"
	"strings"
)

// The purge calls of Fastly's API, as plugins of content management systems
// make them: they need no more than another address.
//
//	POST /service/{id}/purge/{key}   one tag        {"status":"ok","id":"..."}
//	POST /service/{id}/purge         several tags, of Surrogate-Key or of
//	                                 {"surrogate_keys":[...]}: {"tag":"id",...}
//	POST /service/{id}/purge_all     everything     {"status":"ok"}
//
// Fastly-Key is the token, Fastly-Soft-Purge: 1 makes stale rather than remove.
// The service's id is not looked at: a cluster is one service.
func (a *api) fastlyKey(w http.ResponseWriter, r *http.Request) {
	a.fastly(w, r, PurgeRequest{Tags: []string{r.PathValue("key")}}, func(res PurgeResult) any {
		return fastlyAnswer{"ok", res.ID}
	})
}

// fastlyAnswer is the answer to a purge of one thing.
type fastlyAnswer struct {
	Status string `json:"status"`
	ID     string `json:"id,omitempty"`
}

// maxFastlyKeys is how many tags one call may name; Fastly takes as many.
const maxFastlyKeys = 256

func (a *api) fastlyKeys(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Keys []string `json:"surrogate_keys"`
	}
	if r.Header.Get("Surrogate-Key") == "" {
		if !decode(w, r, &body) {
			return
		}
	} else {
		body.Keys = strings.Fields(strings.Join(r.Header["Surrogate-Key"], " "))
	}
	if len(body.Keys) == 0 || len(body.Keys) > maxFastlyKeys {
		fail(w, http.StatusBadRequest, "want 1 to 256 keys, in Surrogate-Key or surrogate_keys")
		return
	}
	a.fastly(w, r, PurgeRequest{Tags: body.Keys}, func(res PurgeResult) any {
		ids := make(map[string]string, len(body.Keys))
		for _, k := range body.Keys {
			ids[k] = res.ID
		}
		return ids
	})
}

func (a *api) fastlyAll(w http.ResponseWriter, r *http.Request) {
	a.fastly(w, r, PurgeRequest{All: true}, func(PurgeResult) any { return fastlyAnswer{Status: "ok"} })
}

func (a *api) fastly(w http.ResponseWriter, r *http.Request, req PurgeRequest, answer func(PurgeResult) any) {
	if a.node.Purge == nil {
		absent(w, r)
		return
	}
	if !named(w, "keys", req.Tags) {
		return
	}
	req.Soft = r.Header.Get("Fastly-Soft-Purge") == "1"
	req.Wait, req.By = "all", r.RemoteAddr
	res, err := a.node.Purge(r.Context(), req, nil)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	a.answer(w, answer(res))
}
