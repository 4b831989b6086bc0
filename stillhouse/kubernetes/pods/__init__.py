"""What the processes of Kubeflow's pods run: the bodies of components and tasks."""
