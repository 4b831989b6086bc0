"""A whole run: its recipe, its graph of stages, its steps, its progress and its times."""
