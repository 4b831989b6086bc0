"""The report of an evaluation: one self-contained HTML page."""
