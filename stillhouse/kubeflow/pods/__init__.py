"""The code in Kubeflow's pods: the bodies of components and tasks."""
