"""Registers releases in Kubeflow's Model Registry, if one is configured; git says which is in use."""
