//go:build tools

// Package tools pins the API server and the kubectl of the tests' control plane: this module exists for its go.mod and
// go.sum. Kubernetes requires its own parts at v0.0.0, which nobody publishes: go.mod says which versions belong together.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
