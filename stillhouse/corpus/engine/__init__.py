"""Engines that divide a step's work among processes and machines; by default no engine is used."""
