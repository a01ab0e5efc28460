"""The operator's program: what surrounds the pure parts on a cluster. Needs the distribution's extra `controller`."""
