"""The parts shared by all training: the loop, the schedule, checkpoints and curves."""
