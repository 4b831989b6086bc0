"""Kubeflow components: one folder a step, rendered from the step's declaration by `stillhouse.components.render`."""
