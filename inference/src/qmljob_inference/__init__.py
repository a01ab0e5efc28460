"""The inference program of QMLJob: loads an artifact, checks it, and reports its mean squared error."""
