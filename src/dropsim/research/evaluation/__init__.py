"""Experiments: people are simulated in chunks, their numbers are tables, and a report is tables, JSON and figures."""
