"""What every training shares: the loop, the schedule, checkpoints and curves."""
