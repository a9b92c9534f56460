"""Motions over time, and the files that they come from."""
