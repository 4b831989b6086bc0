"""Training of retrievers and re-rankers: groups, losses, teachers, and the figures on dev queries."""
