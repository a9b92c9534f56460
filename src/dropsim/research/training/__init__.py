"""Training of the priors that ship: on recordings, on a CPU."""
