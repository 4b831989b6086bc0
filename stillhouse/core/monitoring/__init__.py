"""Reports a running step to Prometheus: live figures on `/metrics`, and one group of results at its end.

Off unless the environment enables it (`stillhouse.core.monitoring.settings`). Imports have no side effects, and
prometheus-client is loaded with the first figure.
"""
