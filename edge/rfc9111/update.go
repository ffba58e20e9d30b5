package rfc9111

import (
	"net/http"
	"slices"
)

// Freshen updates a stored header with that of a 304, or of a HEAD that
// [HeadFreshens] accepts, §3.2: each field that the new one has replaces the
// stored one, whole. Excepted are Content-Length, Content-Encoding,
// Content-Type and Content-Range, which describe the body that is kept, and
// fields of the connection. A Set-Cookie is taken over only if the policy lets
// the updated response keep it. Both arguments stay as they are.
//
// Where the new header has no Date or Age, the result has none either: those
// of the stored response belong to an earlier answer. So the result is what
// [NewStored] and [Storable] have to see (with the stored status; an update
// may bring no-store, or another Vary), and [StoredHeader] makes from it what is kept. Call
// [EnsureDate] on the 304 first.
func Freshen(stored, notModified http.Header, p Policy) http.Header {
	h := make(http.Header, len(stored)+len(notModified))
	for name, lines := range stored {
		if name != "Age" && name != "Date" {
			h[name] = slices.Clone(lines)
		}
	}
	listed := connectionFields(notModified)
	for name, lines := range notModified {
		if isHopByHop(name) || slices.Contains(listed, name) {
			continue
		}
		switch name {
		case "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Set-Cookie":
			continue
		}
		h[name] = slices.Clone(lines)
	}
	if lines := notModified["Set-Cookie"]; len(lines) > 0 && !slices.Contains(listed, "Set-Cookie") {
		if cc, _ := Control(h); keepsSetCookie(&cc, p) {
			h["Set-Cookie"] = slices.Clone(lines)
		}
	}
	return h
}

// NotModifiedMatches reports whether a 304 may update the one stored response
// whose validators were sent, §4.3.4. It may when its strong ETag is the stored
// one's, or its weak ETag is so by weak comparison, or, where one of the two
// has no ETag, its Last-Modified is the stored one's. A 304 without any
// validator answers the only validators that it can have seen, and matches.
//
// When the request listed the validators of several stored responses, use
// [SelectNotModified] instead. One that matches nothing tells of a response
// that isn't held here: the request is made once more, without conditions.
func NotModifiedMatches(stored, notModified http.Header) bool {
	if !hasValidator(notModified) {
		return true
	}
	return sameValidator(stored, notModified)
}

// SelectNotModified says which of several stored responses, most recent first,
// a 304 updates, §4.3.4: all that have its strong ETag; else the most recent
// one that matches; none when it has no validator and there is a choice.
func SelectNotModified(stored []http.Header, notModified http.Header) []int {
	if len(stored) == 1 {
		if NotModifiedMatches(stored[0], notModified) {
			return []int{0}
		}
		return nil
	}
	var found []int
	tag := etagOf(notModified)
	for i, h := range stored {
		if !hasValidator(notModified) || !sameValidator(h, notModified) {
			continue
		}
		found = append(found, i)
		if tag == "" || isWeak(tag) || etagOf(h) == "" {
			break
		}
	}
	return found
}

func sameValidator(stored, received http.Header) bool {
	tag, have := etagOf(received), etagOf(stored)
	switch {
	case tag != "" && have != "" && isWeak(tag):
		return weakMatch(have, tag)
	case tag != "" && have != "":
		return have == tag
	}
	return sameDate(stored, received, "Last-Modified")
}

// HeadEffect is what a HEAD response does to a stored GET response.
type HeadEffect int

const (
	// HeadNothing: it says nothing about the stored response.
	HeadNothing HeadEffect = iota
	// HeadUpdates: the stored response is updated, see [Freshen].
	HeadUpdates
	// HeadInvalidates: the stored response is another one: stale from now on,
	// see [Stored.AsStale].
	HeadInvalidates
)

// HeadFreshens compares a HEAD response with a stored GET response that could
// have been selected for the same request, §4.3.5: a 200 updates a stored 200
// (or 206) when all validators and the Content-Length that the HEAD has are
// the same, and invalidates it otherwise. So do an absence (404, 410), and a
// 200 where another status is stored. Other statuses say nothing.
func HeadFreshens(storedStatus int, stored http.Header, headStatus int, head http.Header) HeadEffect {
	switch {
	case IsAbsence(headStatus) && storedStatus != headStatus:
		return HeadInvalidates
	case headStatus != http.StatusOK:
		return HeadNothing
	case storedStatus != http.StatusOK && storedStatus != http.StatusPartialContent:
		return HeadInvalidates
	}
	if tag := etagOf(head); tag != "" && tag != etagOf(stored) {
		return HeadInvalidates
	}
	if len(head["Last-Modified"]) > 0 && !sameDate(stored, head, "Last-Modified") {
		return HeadInvalidates
	}
	if lines := head["Content-Length"]; len(lines) > 0 && storedStatus == http.StatusOK {
		if have := stored["Content-Length"]; len(have) > 0 && trim(have[0]) != trim(lines[0]) {
			return HeadInvalidates
		}
	}
	return HeadUpdates
}
