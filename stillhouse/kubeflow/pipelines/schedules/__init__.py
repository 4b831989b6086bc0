"""Schedules: recurring runs of the cluster, synchronised with a file, and a watcher that starts a refresh."""
