"""What runs in pods, what a cluster has and says, and steps on several nodes."""
