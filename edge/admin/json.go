package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxRequestBytes bounds the body of a request.
const maxRequestBytes = 1 << 20

// answer sends v as JSON.
func (a *api) answer(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		a.log.Error("admin: answer is no JSON", "error", err)
		fail(w, http.StatusInternalServerError, "internal error, see the log of this node")
		return
	}
	send(w, http.StatusOK, b.Bytes())
}

// fail sends an error of our own.
func fail(w http.ResponseWriter, status int, text string) {
	// A string never fails to marshal.
	b, _ := json.Marshal(struct {
		Error string `json:"error"`
	}{text})
	send(w, status, append(b, '\n'))
}

func send(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// An error here is the client's to notice.
	_, _ = w.Write(body)
}

// refuse sends what a function of the node returned as its error.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var e *Error
	if errors.As(err, &e) && e.Status >= 400 && e.Status <= 599 {
		fail(w, e.Status, e.Text)
		return
	}
	a.log.Error("admin: request failed", "path", r.URL.Path, "error", err)
	fail(w, http.StatusInternalServerError, "internal error, see the log of this node")
}

// absent answers for a function that the node does not have.
func absent(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotImplemented, "this node does not offer "+r.URL.Path)
}

// decode reads the body as one JSON object into v, a pointer to a struct, and
// reports whether it could; else it has answered. An empty body counts as {}.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := checkType(r); err != nil {
		fail(w, http.StatusUnsupportedMediaType, err.Error())
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes: send several requests", maxRequestBytes))
		return false
	case err != nil:
		fail(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
		return false
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return true
	}
	if body[0] != '{' {
		fail(w, http.StatusBadRequest, "the body is not a JSON object")
		return false
	}
	if !utf8.Valid(body) {
		fail(w, http.StatusBadRequest, "the body is not UTF-8")
		return false
	}
	if name := twice(body); name != "" {
		fail(w, http.StatusBadRequest, fmt.Sprintf("%q is there twice: want it once", name))
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		fail(w, http.StatusBadRequest, explainJSON(err, v))
		return false
	}
	if _, err := d.Token(); err != io.EOF {
		fail(w, http.StatusBadRequest, fmt.Sprintf("something follows the JSON object, at byte %d", d.InputOffset()))
		return false
	}
	return true
}

// twice returns a name that the JSON object has twice, in whatever case, of
// which the decoder would take the last; empty when there is none. What is no
// JSON the decoder finds.
func twice(object []byte) string {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return ""
		}
		folded := strings.ToLower(name)
		if seen[folded] {
			return name
		}
		seen[folded] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}

// checkType accepts JSON from everyone, and from programs that are no browsers
// also what they send when they are told nothing (curl -d says that it is a
// form). A browser sends JSON across origins only after asking us, and then we
// do not agree.
func checkType(r *http.Request) error {
	t := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(t)
	if err == nil && media == "application/json" {
		return nil
	}
	browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	if !browser && (t == "" || media == "application/x-www-form-urlencoded") {
		return nil
	}
	return fmt.Errorf("Content-Type is %q: want application/json", t)
}

// explainJSON says what was wrong with a body, and what was expected.
func explainJSON(err error, v any) string {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("the body is not JSON: %v, at byte %d", syntax, syntax.Offset)
	case errors.As(err, &typ):
		return fmt.Sprintf("%s is a JSON %s: want %s", typ.Field, typ.Value, kindOf(typ.Type))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body is not JSON: it ends too early"
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Sprintf("unknown field %s: want %s", name, fields(v))
	}
	return err.Error()
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array of strings"
	}
	return "a string"
}

// fields names what a request may have.
func fields(v any) string {
	t := reflect.TypeOf(v).Elem()
	if t.NumField() == 0 {
		return "an empty object"
	}
	var names []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("json"); name != "-" {
			names = append(names, name)
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return names[0]
}
