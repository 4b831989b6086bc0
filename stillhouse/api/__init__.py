"""What `from stillhouse import …` gives: the steps as functions of Python, for notebooks and other programs."""
