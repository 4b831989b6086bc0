"""Refreshes: from a corpus that changed to the next release, by as little work as the change asks for."""
