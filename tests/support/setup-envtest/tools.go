//go:build tools

// Package tools pins the tool that downloads a control plane's programs: this module exists for its go.mod and go.sum.
package tools

import _ "sigs.k8s.io/controller-runtime/tools/setup-envtest"
