// Package store holds responses in memory.
package store
