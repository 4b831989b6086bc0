"""A whole run: its recipe, its graph of steps, its progress and its times."""
