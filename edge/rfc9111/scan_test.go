package rfc9111

import (
	"strings"
	"testing"
)

func TestIsTokenByte(t *testing.T) {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		if got := isTokenByte(byte(c)); got != (c < 128 && strings.IndexByte(token, byte(c)) >= 0) {
			t.Errorf("%#x: %v", c, got)
		}
	}
}

func TestEqualFold_onlyASCII(t *testing.T) {
	if !equalFold("aZ-", "Az-") || equalFold("k", "\u212a") || equalFold("a", "ab") || equalFold("@", "`") {
		t.Error("wrong")
	}
}
