"""What a comparison runs: for every variant and seed the uses it needs, their settings, and where their outputs lie.

A use lies in one of four places, so that nothing is made twice: `shared` by all; `shared/seed-1` when only the seed
changes it (pre-training, where only the fine-tuning is varied); `<variant>`; `<variant>/seed-1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.comparison.sweep import NAME, Sweep, Variant
from stillhouse.config import field_types, nearest
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS, Use, graph_of, needed
from stillhouse.surfaces.recipes import Recipe, configs

SHARED = "shared"
PRETRAINING = "pretraining"
ENCODER = "pretraining/encoder"
START = "fetch_model/encoder"
REFERENCES = {"bm25": "lexical/run", "zero_shot": "zero_shot_run/run"}
UNPRETRAINED = "retriever_1_unpretrained"
RERANKED = "reranked"
EVALUATION = "evaluate"


@dataclass(frozen=True)
class Job:
    """One variant under one seed; `uses` in the order in which they run, `places` below the comparison's folder."""

    variant: str
    seed: int
    uses: tuple[Use, ...]
    configs: Mapping[str, Any]
    places: Mapping[str, Path]

    @property
    def name(self) -> str:
        return f"{self.variant}, seed {self.seed}"

    @property
    def place(self) -> Path:
        return self.places[EVALUATION]

    def output(self, use: str, port: str) -> Path | None:
        """An output's path relative to the comparison's folder; None where the job has no such use."""
        return self.places[use] / ARTIFACTS / use / port if use in self.places else None


@dataclass(frozen=True)
class Plan:
    """`reference` measures BM25 and the starting model, for every variant to stand beside.

    `recipe` are the sections as they were written, the sweep's own settings put in.
    """

    sweep: Sweep
    reference: Job
    jobs: tuple[Job, ...]
    recipe: Recipe


def make_plan(sweep: Sweep, recipe: Recipe, where: str) -> Plan:
    """Lays out a sweep over a recipe. Raises `InputError` for a setting or a value that there is not."""
    graph = graph_of(recipe, where)
    names = {use.name for use in graph}
    systems = [name for name in (*_trained(graph), RERANKED) if f"{name}_run" in names]
    if sweep.retriever not in systems:
        raise InputError(f"sweep {sweep.name}: retriever {sweep.retriever!r}; {nearest(sweep.retriever, systems)}")
    if PRETRAINING not in names and any(variant.pretraining for variant in sweep.variants):
        raise InputError(
            f"{where} leaves {PRETRAINING} out, which sweep {sweep.name} varies; take it back into `stages`"
        )
    base = merged(recipe, sweep.overrides)
    base_configs = configs(base, f"{where} with the overrides of sweep {sweep.name}")
    reference = _reference(graph, base_configs)
    jobs = []
    for variant in sweep.variants:
        recipe_of_variant = merged(base, variant.overrides)
        settings = configs(recipe_of_variant, f"sweep {sweep.name}, variant {variant.name}")
        jobs += [_job(graph, sweep, variant, seed, settings, base_configs) for seed in sweep.seeds]
    # All variants of one seed come before the next seed, so that a comparison that is stopped early is still one.
    order = {seed: i for i, seed in enumerate(sweep.seeds)}
    return Plan(sweep, reference, tuple(sorted(jobs, key=lambda job: order[job.seed])), base)


def merged(recipe: Recipe, overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The recipe with `use.field` values put in."""
    result = {name: dict(values) for name, values in recipe.items()}
    for key, value in overrides.items():
        use, field = key.split(".")
        result.setdefault(use, {})[field] = value
    return result


def seeded(uses: Iterable[Use]) -> list[str]:
    """The uses that a comparison's seed goes to: the trainings from pre-training on; what comes before is the same."""
    uses = list(uses)
    below = _below({PRETRAINING, *_trained(uses)}, uses)
    return [
        use.name
        for use in uses
        if use.name in below and "seed" in field_types(use.step.config) and use.name != EVALUATION
    ]


def _trained(uses: Iterable[Use]) -> list[str]:
    """The retrievers that a comparison can be of; that without pre-training is the variant `pretraining: false`."""
    return [use.name for use in uses if use.step_name == "train-retriever" and use.name != UNPRETRAINED]


def _job(
    of_recipe: Sequence[Use],
    sweep: Sweep,
    variant: Variant,
    seed: int,
    settings: Mapping[str, Any],
    base: Mapping[str, Any],
) -> Job:
    graph = [use if variant.pretraining else _unpretrained(use) for use in of_recipe if use.name != EVALUATION]
    graph = rewired(graph, variant.inputs, f"sweep {sweep.name}, variant {variant.name}")
    uses = needed(graph, [f"{sweep.retriever}_run"])
    uses.append(_evaluation(sweep.retriever, variant.pretraining))
    own_seed = seeded(uses)
    chosen = {use.name: settings[use.name] for use in uses}
    chosen |= {name: replace(chosen[name], seed=seed) for name in own_seed}
    chosen[EVALUATION] = replace(chosen[EVALUATION], title=evaluation_title(sweep, variant, seed))
    changed = {use.name for use in uses if settings[use.name] != base[use.name]} | {EVALUATION}
    changed |= {use.name for use in uses if use not in of_recipe}
    by_variant, by_seed = _below(changed, uses), _below({*own_seed, EVALUATION}, uses)
    places = {
        use.name: Path(variant.name if use.name in by_variant else SHARED)
        / (f"seed-{seed}" if use.name in by_seed else "")
        for use in uses
    }
    return Job(variant.name, seed, tuple(uses), chosen, places)


def evaluation_title(sweep: Sweep, variant: Variant, seed: int) -> str:
    """The title of one run's evaluation, by which it can be told from all others of the sweep."""
    return f"{sweep.title or sweep.name}: {variant.title}, seed {seed}"


def rewired(graph: Sequence[Use], inputs: Mapping[str, str], where: str) -> list[Use]:
    """The graph with other inputs, `use.port` -> `use/output` of an earlier use.

    Raises `InputError` for an input that there is not, and for an output that is none of an earlier use or of its kind.
    """
    changed = list(graph)
    for key, source in inputs.items():
        ports = {
            f"{use.name}.{name}": (place, name)
            for place, use in enumerate(graph)
            for port in use.step.inputs
            for name in (port.keys(use.inputs) if port.many else [port.name])
        }
        if key not in ports:
            raise InputError(f"{where}: there is no input {key!r}; {nearest(key, ports)}")
        place, name = ports[key]
        kind = graph[place].step.port_of(name).kind
        fitting = [
            f"{use.name}/{output.name}" for use in graph[:place] for output in use.step.outputs if output.kind == kind
        ]
        if source not in fitting:
            raise InputError(f"{where}: {key} cannot be {source!r}; {nearest(source, fitting)}")
        changed[place] = replace(changed[place], inputs={**changed[place].inputs, name: source})
    return changed


def refuse_rewired(plan: Plan, surface: str) -> None:
    """Refuses variants that give uses other inputs where the graph cannot be changed."""
    for variant in plan.sweep.variants:
        if variant.inputs:
            raise InputError(
                f"sweep {plan.sweep.name}: {variant.name} gives {', '.join(variant.inputs)} another input, which "
                f"{surface} cannot; run it here, or leave {variant.name} out by --only"
            )


def _reference(graph: Sequence[Use], settings: Mapping[str, Any]) -> Job:
    names = {use.name for use in graph}
    runs = {f"run/{system}": source for system, source in REFERENCES.items() if source.split("/")[0] in names}
    if not runs:
        raise InputError(
            "a comparison stands beside BM25 or the start; the recipe's `stages` leave both out: take one back"
        )
    uses = needed(graph, [source.split("/")[0] for source in runs.values()])
    uses.append(Use(EVALUATION, EVALUATION, {"corpus": "ingest/corpus"} | runs))
    return Job("reference", 0, tuple(uses), settings, {use.name: Path(SHARED) for use in uses})


def _unpretrained(use: Use) -> Use:
    """The use with the starting model where the pre-trained encoder would be."""
    return replace(use, inputs={port: START if source == ENCODER else source for port, source in use.inputs.items()})


def _evaluation(retriever: str, pretrained: bool) -> Use:
    """The evaluation of one retriever, with the loss curves of its trainings."""
    system = retriever if pretrained or retriever != "retriever_1" else UNPRETRAINED
    curves = {f"curves/{system}": f"{retriever}/curves"}
    if retriever == RERANKED:
        curves = {"curves/reranker": "reranker/curves"}
    if pretrained:
        curves[f"curves/{PRETRAINING}"] = f"{PRETRAINING}/curves"
    return Use(EVALUATION, EVALUATION, {"corpus": "ingest/corpus", f"run/{system}": f"{retriever}_run/run"} | curves)


def _below(names: Iterable[str], uses: Iterable[Use]) -> set[str]:
    """The named uses and every one that reads, directly or not, what they write."""
    found = set(names)
    for use in uses:
        if any(source.split("/")[0] in found for source in use.inputs.values()):
            found.add(use.name)
    return found


def check_name(name: str) -> str:
    """A sweep's name as a folder. Raises `InputError` for one that cannot be one."""
    if not NAME.fullmatch(name):
        raise InputError(f"a comparison cannot be called {name!r}; use letters, digits and . _ + -")
    return name
