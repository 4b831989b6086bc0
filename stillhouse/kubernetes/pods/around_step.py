"""What a task does around each of its steps: it says its time, labels its metrics, and frees its memory."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from stillhouse.context import quiet
from stillhouse.environment_variables import environment_variables
from stillhouse.kubernetes.pods.several_processes import processes_asked
from stillhouse.kubernetes.trainjob.settings import read_node_settings
from stillhouse.monitoring.activity import doing
from stillhouse.monitoring.duration import in_words
from stillhouse.monitoring.settings import TASK
from stillhouse.steps.sharding import DIVIDED
from stillhouse.steps.spec import Step
from stillhouse.workflow.first_run_times import on_processor, predicted_seconds, scale_of


@doing("estimating the time")
def about(step: Step, config: Any, corpus: Path, models: Iterable[Path]) -> str:
    """The time of a step as ", about 11 min"; empty in quiet mode and if it is unknown.

    Any model of the run has the size of its starting model, so the first that exists among `models` counts. The time is
    unknown before there is one and a corpus, on a GPU, and if several processes or nodes share the work.
    """
    if quiet() or not on_processor() or _shared(step):
        return ""
    scale = next(filter(None, (scale_of(corpus, model) for model in models)), None)
    return f", about {in_words(predicted_seconds(step.name, config, scale))}" if scale else ""


def _shared(step: Step) -> bool:
    names = [name for name in (step.name, DIVIDED.get(step.name, "")) if name]
    if any(read_node_settings(os.environ, name, sys.argv) for name in names):
        return True
    return step.parallel and processes_asked() > 1


def labelled(use: str) -> AbstractContextManager[None]:
    """Labels the step's Prometheus metrics with the name of its use, also in processes that it starts."""
    return environment_variables({TASK: use})


def free_memory() -> None:
    """Frees a step's memory, as the end of its process would: the next step may need the whole GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
