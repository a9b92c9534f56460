"""What changes a prior's proposals."""
