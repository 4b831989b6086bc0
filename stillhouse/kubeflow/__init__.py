"""Kubeflow: what runs in pods, steps on several nodes, the state of the cluster, and the pipelines."""
