"""Releases in Kubeflow's Model Registry, where one is configured: git says what is in use, the registry follows."""
