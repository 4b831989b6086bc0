"""The surfaces that call steps: the command line, dvc.yaml, Kubeflow components, and one process for tests."""
