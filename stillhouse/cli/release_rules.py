"""Flags that say when a challenger is refused, shared by all commands that promote."""

from __future__ import annotations

import argparse
from typing import Any

from stillhouse.pipeline.step_command import add_setting_flags, given_settings
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.releases.refresh.parameters import RULES


def add_rule_flags(parser: argparse._ActionsContainer) -> None:
    """Adds flags for the settings of the step `compare-release`."""
    add_setting_flags(parser, find_step("compare-release").config, RULES)


def rule_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags that were given, in the types of the settings."""
    return given_settings(arguments, find_step("compare-release").config, RULES)
