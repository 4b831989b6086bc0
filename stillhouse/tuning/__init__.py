"""The search for settings: a space of them, trials on the dev questions, Optuna here and Katib on a cluster."""
