"""Gives any autoregressive human motion model a body that obeys physics."""

import os

# Read by OpenMP when torch is loaded; why, says dropsim.threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
