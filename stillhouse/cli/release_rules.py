"""Flags that say when a challenger is refused, shared by all commands that promote."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from stillhouse.config import field_types
from stillhouse.releases.refresh.parameters import RULES
from stillhouse.setting_kinds import from_text, kind_of
from stillhouse.steps.registry import find_step
from stillhouse.workflow.step_command import flag_of, metavar_of


def add_rule_flags(parser: argparse._ActionsContainer) -> None:
    """Adds flags for the settings of the step `compare-release`."""
    config = find_step("compare-release").config
    fields, kinds = {field.name: field for field in dataclasses.fields(config)}, field_types(config)
    for name in RULES:
        field = fields[name]
        metavar = metavar_of(kind_of(kinds[name]))
        parser.add_argument(flag_of(name), metavar=metavar, help=f"{field.metadata['help']} (default: {field.default})")


def rule_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags that were given, in the types of the settings."""
    kinds = field_types(find_step("compare-release").config)
    given = {name: getattr(arguments, name) for name in RULES}
    return {name: from_text(text, kinds[name], flag_of(name)) for name, text in given.items() if text is not None}
