"""Runs a QMLJob on one machine: processes in the place of pods, a folder in the place of a bucket."""
