package rfc9111

// IsHeuristicallyCacheable reports whether a final response with this status
// may be given a heuristic freshness lifetime without public, RFC 9110 §15.1.
func IsHeuristicallyCacheable(status int) bool {
	switch status {
	case 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501:
		return true
	}
	return false
}

// IsUnderstood reports whether this cache knows the status and what caching it
// asks for, as must-understand requires (§5.2.2.3): the final statuses of
// RFC 9110 §15 and those that its registry lists.
func IsUnderstood(status int) bool {
	switch status {
	case 200, 201, 202, 203, 204, 205, 206, 207, 208, 226,
		300, 301, 302, 303, 304, 305, 307, 308,
		400, 401, 402, 403, 404, 405, 406, 407, 408, 409,
		410, 411, 412, 413, 414, 415, 416, 417,
		421, 422, 423, 424, 425, 426, 428, 429, 431, 451,
		500, 501, 502, 503, 504, 505, 506, 507, 508, 511:
		return true
	}
	return false
}

// IsAbsence reports whether the status says that there is nothing under the
// URL, and that this was not provoked by other fields of the request.
func IsAbsence(status int) bool { return status == 404 || status == 410 }

// CanMeanAbsence reports whether an origin may use the status to say that there
// is nothing under the URL: any 4xx but those that other fields of the request
// provoke, the client's identity or the moment.
func CanMeanAbsence(status int) bool {
	switch status {
	case 401, 406, 407, 408, 411, 412, 413, 415, 416, 417, 421, 425, 426, 428, 429, 431:
		return false
	}
	return status >= 400 && status <= 499
}

// IsOriginFailure reports whether an answer with this status lets a stale
// response be served in its place, RFC 5861 §4; see [Stored.StaleOnError].
func IsOriginFailure(status int) bool {
	return status == 500 || status == 502 || status == 503 || status == 504
}

// IsSafe reports whether the method is one of those that RFC 9110 §9.2.1 defines
// as safe. Any other counts as unknown, also the safe ones of other documents:
// taking PROPFIND for unsafe costs a validation, the reverse a wrong answer.
func IsSafe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}
