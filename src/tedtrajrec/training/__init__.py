"""Training: the loop, its state on disk, and what it shows."""
