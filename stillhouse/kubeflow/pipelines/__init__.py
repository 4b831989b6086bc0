"""Kubeflow pipelines, the only code that composes the components."""
