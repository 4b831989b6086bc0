"""Comparisons of pre-trainings: a sweep in, one table and one page out. Knows no step and no command line."""
