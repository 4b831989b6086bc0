"""Kubeflow components: one folder per step, rendered from the step's declaration by `stillhouse.components.render`."""
