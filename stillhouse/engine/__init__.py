"""Engines that share a step's work among processes and machines; the default is none of them."""
