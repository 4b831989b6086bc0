"""The names of `from stillhouse import …`: the steps as Python functions, for notebooks and other programs."""
