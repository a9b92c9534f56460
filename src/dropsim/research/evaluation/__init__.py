"""Measuring what the parts can do: numbers beside those of recorded motion, figures, and the table of the model card."""
