"""Refreshes: from a changed corpus to the next release, with as little work as the change requires."""
