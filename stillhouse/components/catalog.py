"""Finds the component of a step."""

from __future__ import annotations

from importlib import import_module

from kfp.dsl.base_component import BaseComponent

from stillhouse.steps.spec import Step


def find_component(step: Step) -> BaseComponent:
    """The component of a step, with the current image."""
    return getattr(import_module(f"stillhouse.components.{step.identifier}.component"), step.identifier)
