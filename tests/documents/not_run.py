"""The documented commands that these tests do not run: the beginning of each, why, and what checks it instead."""

from __future__ import annotations

from documented_commands import Command

NOT_RUN: dict[str, tuple[str, str]] = {
    ". .venv/bin/activate": ("the tests' environment stands in its place", "every test"),
    "make ": ("sets up environments, runs all tests, takes hours or needs root", "test_targets_of_make_exist; CI"),
    "VARIABLE make ": ("", ""),
    "apt-get ": ("installs programs as root", "images/build, which needs them"),
    "pip install": ("needs a network", "test_packages_are_those_of_the_extras"),
    "kubectl api-resources ": ("asks a cluster", "nothing"),
    "kubectl apply --server-side --dry-run=server -k": ("the beginning of a command", "test_overlays_of_the_page"),
    "kubectl -n stillhouse create job ": ("needs a cluster", "test_names_in_commands_for_a_cluster"),
    "kubectl -n stillhouse wait ": ("needs a cluster", ""),
    "kubectl -n stillhouse logs ": ("needs a cluster", ""),
    "kubectl delete trainjob ": ("needs a cluster", ""),
    "kubectl describe nodes": ("needs a cluster", ""),
    "kubectl label namespace ": ("needs a cluster", ""),
    "python tests/": ("hours of work", "tests/test_mutants.py and tests/serving/test_chaos.py, with fewer changes"),
    "pytest ": ("these are tests themselves", "test_documented_tests_exist"),
}


def why_not(command: Command) -> str:
    """The entry of the table that a command is of, or nothing if it is run."""
    return next((start for start in NOT_RUN if command.text.startswith(start)), "")


def runs(command: Command) -> bool:
    """Whether a test types the command."""
    return not command.only_named and not why_not(command)
