//go:build e2e || netns

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// leftOf are the processes that have the directory in their command line.
func leftOf(t *testing.T, dir string) (left []string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		line, _ := os.ReadFile(p) // those that end meanwhile have none
		if text := string(line); strings.Contains(text, dir) {
			left = append(left, text)
		}
	}
	return left
}
