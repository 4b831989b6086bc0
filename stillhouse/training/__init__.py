"""Training: the loop that all kinds share, losses, negatives and teachers."""
