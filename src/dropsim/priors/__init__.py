"""Motion priors: learned, recorded, and none."""
