"""What a running step reports to Prometheus: live figures on `/metrics`, and one group of results at its end.

Off unless the environment asks for it (`stillhouse.monitoring.settings`); nothing here is imported for its effects, and
prometheus-client is loaded when the first figure is due.
"""
