"""A fault injector: a proxy before an API server that strikes at chosen calls (docs/chaos.md)."""
