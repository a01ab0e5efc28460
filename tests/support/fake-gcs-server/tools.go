//go:build tools

// Package tools pins the bucket emulator that the store tests run: this module exists for its go.mod and go.sum.
package tools

import _ "github.com/fsouza/fake-gcs-server"
