"""Code that runs in pods, checks of the cluster, and steps on several nodes."""
