"""Plugins from outside of the tree: what a user's package looks like."""
