"""Chunks of the push protocol."""
