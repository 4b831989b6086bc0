"""Schedules: the cluster's recurring runs made equal to a file, and a watcher that starts a refresh."""
