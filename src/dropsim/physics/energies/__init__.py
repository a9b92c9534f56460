"""The energies: the ragdoll's own, the prior's, and those that edit a motion."""
