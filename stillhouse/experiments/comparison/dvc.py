"""A sweep as DVC experiments: one `dvc exp run --queue` for each variant and seed.

An experiment is a full run of the workspace's dvc.yaml with a variant's settings. The variant without pre-training
uses the graph's own `retriever_1_unpretrained`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stillhouse.config import field_types
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.graph import EVALUATION, seeded
from stillhouse.experiments.comparison.plan import Job, Plan
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.experiments.comparison.variants import Variant
from stillhouse.workflow.graph import PRETRAINING, graph_of, known_uses

UNPRETRAINED = {"retriever_1": "retriever_1_unpretrained"}
PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
"""Text that DVC's settings parser accepts unquoted."""


def queue(plan: Plan, folder: Path, say: Callable[[str], None], *, dry_run: bool) -> int:
    """Queue a sweep in a workspace, or with `dry_run` only print the commands. Returns the exit code.

    Raises `InputError` if the folder is not a workspace in a git repository, if a variant changes the graph, or if DVC
    refuses an experiment.
    """
    _refuse_other_graphs(plan.sweep)
    commands = [command(plan, job) for job in plan.jobs]
    if not dry_run:
        _check_workspace(folder)
    for words in commands:
        say(shlex.join(words))
        if not dry_run:
            done = subprocess.run([_program(), *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
                why = next((line for line in reason if line.startswith("ERROR")), reason[-1]).removeprefix("ERROR: ")
                raise InputError(f"dvc did not queue {words[5]}: {why}")
    if not dry_run:
        say(
            f"queued {len(commands)} experiments in {folder}; run them with `dvc queue start`, compare with "
            "`dvc exp show`"
        )
    return 0


def _refuse_other_graphs(sweep: Sweep) -> None:
    """Raises `InputError` for sweeps that change the recipe's graph, since every experiment has that of dvc.yaml."""
    remedy = "which a DVC experiment does not support; run it here or with --kubeflow"
    for variant in sweep.variants:
        changes = f"gives {', '.join(variant.inputs)} another input" if variant.inputs else ""
        changes = f"measures {variant.retriever}" if variant.retriever and not changes else changes
        if changes:
            others = f"leave {variant.name} out with --only"
            raise InputError(f"sweep {sweep.name}: {variant.name} {changes}, {remedy}, or {others}")
    if sweep.losses or sweep.stages:
        what = f"measures {', '.join(sweep.losses)}" if sweep.losses else f"adds the stages {', '.join(sweep.stages)}"
        raise InputError(f"sweep {sweep.name} {what}, {remedy}")


def command(plan: Plan, job: Job) -> list[str]:
    """The words of the command that queues one variant with one seed."""
    [variant] = [variant for variant in plan.sweep.variants if variant.name == job.variant]
    settings = experiment_settings(plan, variant, job)
    words = ["dvc", "exp", "run", "--queue", "--name", experiment_name(plan.sweep.name, job)]
    for key, value in settings.items():
        # ++ changes settings in the recipe and adds those that it leaves at their defaults.
        words += ["--set-param", f"++{key}={literal(value)}"]
    return [*words, EVALUATION]


def experiment_settings(plan: Plan, variant: Variant, job: Job) -> dict[str, Any]:
    """{use.field: value}: the overrides of the sweep and the variant, and the seed of every use that has one."""
    settings: dict[str, Any] = dict(plan.sweep.overrides) | dict(variant.overrides)
    settings |= {f"{name}.seed": job.seed for name in seeded(job.uses)}
    if variant.pretraining:
        return settings
    uses = known_uses(plan.recipe)
    own_row = UNPRETRAINED.get(plan.sweep.retriever)
    if own_row not in {use.name for use in graph_of(plan.recipe)}:
        raise InputError(
            f"sweep {plan.sweep.name}: as a DVC experiment only retriever_1 can run without pre-training, and only if "
            f"the recipe has the stage {UNPRETRAINED['retriever_1']}; leave {variant.name} out with --only"
        )
    own = {plan.sweep.retriever, *(f"{plan.sweep.retriever}_{part}" for part in ("index", "run"))}
    renamed = {}
    for key, value in settings.items():
        use, field = key.split(".")
        if use == PRETRAINING:
            continue
        if use in own:
            use = use.replace(plan.sweep.retriever, UNPRETRAINED[plan.sweep.retriever], 1)
        assert field in field_types(uses[use].step.config), key
        renamed[f"{use}.{field}"] = value
    return renamed


def experiment_name(sweep: str, job: Job) -> str:
    """A name that is valid as a git reference."""
    return re.sub(r"[^A-Za-z0-9+-]+", "-", f"{sweep}-{job.variant}-seed-{job.seed}")


def literal(value: Any) -> str:
    """A value in the grammar of DVC's `--set-param`, which is that of Hydra."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{literal(key)}:{literal(part)}' for key, part in value.items())}}}"
    if not isinstance(value, str):
        return repr(value)
    if PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null") and not _is_number(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _program() -> str:
    """DVC's program, preferably from this environment."""
    own = Path(sys.executable).with_name("dvc")
    found = str(own) if own.is_file() else shutil.which("dvc")
    if found is None:
        raise InputError("--dvc needs DVC: pip install 'stillhouse[platform]'")
    return found


def _check_workspace(folder: Path) -> None:
    for name in ("dvc.yaml", "params.yaml"):
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}: --dvc needs a workspace; make one with `stillhouse new FOLDER`")
    inside = subprocess.run(["git", "rev-parse", "--verify", "HEAD"], cwd=folder, capture_output=True, check=False)
    if inside.returncode:
        raise InputError(
            f"{folder} is not in a git repository with a commit, which DVC experiments need; in it, run "
            "`git init && dvc config --unset core.no_scm && git add -A && git commit -m start`"
        )
