//go:build tools

// Package tools pins the etcd that the tests' control plane runs on: this module exists for its go.mod and go.sum.
package tools

import _ "go.etcd.io/etcd/server/v3"
