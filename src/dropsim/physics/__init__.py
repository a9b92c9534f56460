"""Algorithm 1: energies, solver, contact, root wrench."""
