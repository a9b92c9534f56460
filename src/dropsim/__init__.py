"""Gives any autoregressive human motion model a body that obeys physics."""
