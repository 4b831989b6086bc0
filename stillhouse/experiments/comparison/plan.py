"""The plan of a comparison: for every variant and seed its steps, their settings, and the places of their outputs.

Outputs are in one of four places, so that nothing is computed twice: `shared` by all; `shared/seed-1` if they depend
only on the seed (such as pre-training if only the fine-tuning varies); `<variant>`; `<variant>/seed-1`. Outputs that a
condition of the sweep changes are in the same places below `<condition>`; conditions share the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.config import refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.graph import (
    EVALUATION,
    REFERENCES,
    RUN,
    below,
    evaluation,
    is_training,
    rewired,
    seeded,
    systems,
    unpretrained,
    with_stages,
)
from stillhouse.experiments.comparison.sweep import NAME, Condition, Sweep, Variant
from stillhouse.pipeline.graph import ARTIFACTS, PRETRAINING, GraphStep, graph_of, needed
from stillhouse.pipeline.graph_steps import step_of
from stillhouse.pipeline.recipes import Recipe, configs, copied

SHARED = "shared"

Adjust = Callable[[GraphStep, Any], Any]
"""Changes the settings of a step, like `small.small`."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed; `steps` are in running order, `places` are relative to the comparison's folder."""

    variant: str
    seed: int
    steps: tuple[GraphStep, ...]
    configs: Mapping[str, Any]
    places: Mapping[str, Path]

    @property
    def name(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def place(self) -> Path:
        return self.places[EVALUATION]

    def output(self, step: str, port: str) -> Path | None:
        """An output's path relative to the comparison's folder, or None if the job has no such step."""
        return self.places[step] / ARTIFACTS / step / port if step in self.places else None

    def placed(self, step: GraphStep, folder: Path) -> GraphStep:
        """The step with inputs from wherever they are in the comparison's `folder`."""
        read = {key: folder / self.places[step_of(source)] / ARTIFACTS / source for key, source in step.inputs.items()}
        return replace(step, inputs={key: str(path.absolute()) for key, path in read.items()})

    @property
    def run(self) -> Path:
        """The measured run, relative to the comparison's folder."""
        source = next(source for key, source in self.steps[-1].inputs.items() if key.startswith(f"{RUN}/"))
        return self.places[step_of(source)] / ARTIFACTS / source


@dataclass(frozen=True)
class Plan:
    """`reference` measures BM25 and the initial model, to compare every variant with.

    `recipe` has the recipe's sections with the sweep's own settings applied.
    """

    sweep: Sweep
    reference: Job
    jobs: tuple[Job, ...]
    recipe: Recipe


def make_plan(sweep: Sweep, recipe: Recipe, where: str, adjust: Adjust | None = None) -> Plan:
    """Plan a sweep over a recipe. Raises `InputError` for an unknown setting or an invalid value.

    For a sweep with conditions use `plans`.
    """
    if sweep.conditions:
        names = ", ".join(condition.name for condition in sweep.conditions)
        raise InputError(f"sweep {sweep.name} has conditions: choose one with `stillhouse compare --under`: {names}")
    recipe = with_stages(recipe, sweep.stages)
    graph = graph_of(recipe, f"{where} with the stages of sweep {sweep.name}" if sweep.stages else where)
    steps = {step.name: step for step in graph}
    sweep = replace(sweep, variants=tuple(_of_graph(variant, sweep, graph, where) for variant in sweep.variants))

    def settings_of(recipe: Recipe, where: str) -> dict[str, Any]:
        found = configs(recipe, where)
        return {name: adjust(steps[name], config) for name, config in found.items()} if adjust else found

    base = merged(recipe, sweep.overrides)
    base_configs = settings_of(base, f"{where} with the overrides of sweep {sweep.name}")
    reference = _reference(graph, base_configs)
    settings = {
        variant.name: settings_of(merged(base, variant.overrides), f"sweep {sweep.name}, variant {variant.name}")
        for variant in sweep.variants
    }
    # All variants run with one seed before the next, so that a comparison is usable even if it is stopped early.
    order = ((seed, one) for seed in sweep.seeds for one in sweep.variants)
    jobs = [_job(graph, sweep, one, seed, settings[one.name], base_configs) for seed, one in order]
    return Plan(sweep, reference, tuple(jobs), base)


def plans(sweep: Sweep, recipe: Recipe, where: str, adjust: Adjust | None = None) -> dict[str, Plan]:
    """The plan for each condition by name, in one common folder. A sweep without conditions has one plan, ""."""
    if not sweep.conditions:
        return {"": make_plan(sweep, recipe, where, adjust)}
    return {
        condition.name: _apart(make_plan(sweep.under(condition.name), recipe, where, adjust), condition)
        for condition in sweep.conditions
    }


def _apart(plan: Plan, condition: Condition) -> Plan:
    """The plan with its evaluations and the outputs that its condition changes moved below folders of conditions."""
    sections = {key.split(".")[0] for key in condition.overrides}

    def moved(job: Job) -> Job:
        changed = below({step.name for step in job.steps if step.section in sections}, job.steps)
        places = {name: condition.place / place if name in changed else place for name, place in job.places.items()}
        return replace(job, places=places | {EVALUATION: condition.name / job.place})

    return replace(plan, reference=moved(plan.reference), jobs=tuple(moved(job) for job in plan.jobs))


def merged(recipe: Recipe, overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The recipe with `step.field` values applied."""
    result = copied(recipe)
    for key, value in overrides.items():
        step, field = key.split(".")
        result.setdefault(step, {})[field] = value
    return result


def _of_graph(variant: Variant, sweep: Sweep, graph: Sequence[GraphStep], where: str) -> Variant:
    """The variant, without pre-training if nothing that its run needs is pre-trained and it changes no such setting.

    Raises `InputError` for an unknown system, and for settings of a pre-training that the recipe has not.
    """
    who, runs = f"sweep {sweep.name}, variant {variant.name}", systems(graph)
    system = variant.retriever or sweep.retriever
    refuse_unknown(system, runs, f"{who if variant.retriever else f'sweep {sweep.name}'}: retriever")
    varied, own = (
        [key for key in of if key.split(".")[0] == PRETRAINING] for of in (sweep.overrides, variant.overrides)
    )
    if variant.pretraining and (varied or own) and PRETRAINING not in {step.name for step in graph}:
        raise InputError(
            f"{where} has no {PRETRAINING}, which sweep {sweep.name} varies; choose a recipe of another graph"
        )
    needs = {step.name for step in needed(rewired(graph, variant.inputs, who), [step_of(runs[system])])}
    return variant if own or PRETRAINING in needs else replace(variant, pretraining=False)


def _job(
    of_recipe: Sequence[GraphStep],
    sweep: Sweep,
    variant: Variant,
    seed: int,
    settings: Mapping[str, Any],
    base: Mapping[str, Any],
) -> Job:
    own = [step if variant.pretraining else unpretrained(step) for step in of_recipe if step.name != EVALUATION]
    graph = rewired(own, variant.inputs, f"sweep {sweep.name}, variant {variant.name}")
    system = variant.retriever or sweep.retriever
    run = systems(of_recipe)[system]
    of_run = needed(graph, [step_of(run)])
    losses = sweep.losses.values() if any(map(is_training, of_run)) else ()
    for name in losses:
        trainings = [step.name for step in graph if is_training(step)]
        refuse_unknown(name, trainings, f"sweep {sweep.name}: losses: there is no training")
    steps = needed(graph, [step_of(run), *losses])
    steps.append(evaluation(system, run, variant.pretraining, of_run))
    own_seed = seeded(steps)
    chosen = {step.name: settings[step.name] for step in steps}
    chosen |= {name: replace(chosen[name], seed=seed) for name in own_seed}
    title = f"{sweep.title or sweep.name}: {variant.title}, seed {seed}"
    chosen[EVALUATION] = replace(chosen[EVALUATION], title=title)
    changed = {step.name for step in steps if settings[step.name] != base[step.name]} | {EVALUATION}
    changed |= {step.name for step in steps if step not in of_recipe}
    by_variant, by_seed = below(changed, steps), below({*own_seed, EVALUATION}, steps)
    places = {
        step.name: Path(variant.name if step.name in by_variant else SHARED)
        / (f"seed-{seed}" if step.name in by_seed else "")
        for step in steps
    }
    return Job(variant.name, seed, tuple(steps), chosen, places)


def _reference(graph: Sequence[GraphStep], settings: Mapping[str, Any]) -> Job:
    names = {step.name for step in graph}
    runs = {f"run/{system}": source for system, source in REFERENCES.items() if source.split("/")[0] in names}
    if not runs:
        raise InputError("a comparison needs BM25 or the base model as a reference; the recipe's graph has neither")
    steps = needed(graph, [source.split("/")[0] for source in runs.values()])
    steps.append(GraphStep(EVALUATION, EVALUATION, {"corpus": "ingest/corpus"} | runs, stage="evaluation"))
    return Job("reference", 0, tuple(steps), settings, {step.name: Path(SHARED) for step in steps})


def check_name(name: str) -> str:
    """A sweep's name, checked. Raises `InputError` if it is not valid as a folder's name."""
    if not NAME.fullmatch(name):
        raise InputError(f"a comparison cannot be named {name!r}; use letters, digits and . _ + -")
    return name
