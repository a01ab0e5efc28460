"""Builders of the Kubernetes objects that a job owns: spec in, fresh dict out."""
