"""Kubeflow pipelines, composed of the components; nothing else composes them."""
