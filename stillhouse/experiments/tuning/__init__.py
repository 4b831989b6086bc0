"""The search for settings: a search space, trials on the dev questions, Optuna."""
