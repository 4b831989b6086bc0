"""Comparisons of pre-training runs: from a sweep to a table and a page. Independent of steps and command line."""
