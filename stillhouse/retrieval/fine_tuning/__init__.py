"""Training of retrievers and re-rankers: groups, losses, teachers and metrics on dev queries."""
