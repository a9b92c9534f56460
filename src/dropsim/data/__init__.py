"""Recordings in and out: files, retargeting, contact labels and the data set."""
