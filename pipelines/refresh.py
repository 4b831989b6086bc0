# No `from __future__ import annotations` here: kfp reads the types of the signature as they stand.
"""The refresh as a Kubeflow pipeline: the corpus is read anew, and its change says which of four rungs is climbed.

Every rung's steps are tasks; a rung that is not climbed is skipped, and where nothing changed all are.
"""

from pathlib import Path
from typing import Any

import yaml
from kfp import compiler, dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from pipelines.refresh_tasks import plan_refresh, release_refresh
from pipelines.tasks import make_task
from stillhouse.config import field_types
from stillhouse.graph import Use
from stillhouse.refresh.graph import BEFORE, CHAMPION, uses_of
from stillhouse.refresh.plan import Rung
from stillhouse.surfaces.recipes import Recipe, configs
from stillhouse.surfaces.refresh_component import MADE

NAME = "refresh"
DESCRIPTION = "Brings the released retriever up to date with its corpus, by as little work as its change asks for."


def compile_refresh(recipe: Recipe, where: str, output: Path) -> None:
    """Writes the pipeline of a recipe as IR YAML."""
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler.Compiler().compile(build_refresh(recipe, where), str(output))


def build_refresh(recipe: Recipe, where: str = "recipe") -> BaseComponent:
    """The pipeline of a recipe, whose settings hold for every step of every rung.

    Raises `InputError` for a section or setting that is unknown or ill-typed.
    """
    settings = configs(recipe, where)
    fixed = yaml.safe_dump({name: dict(values) for name, values in recipe.items()}, sort_keys=False)

    @dsl.pipeline(name=NAME, description=DESCRIPTION)
    def refresh(
        releases: str,
        repo: str = "",
        source: str = settings["ingest"].source,
        revision: str = "",
        branch: str = "",
        fine_tune_above: float = 0.02,
        pretrain_above: float = 0.2,
        measure: str = "RR@10",
        alpha: float = 0.05,
        most_loss: float = 0.02,
        again: bool = False,
    ):
        """Brings the released retriever up to date with its corpus.

        Args:
            releases: the git repository of the releases, as a URL.
            repo: the DVC repository that the corpus is read from; empty = source is a place of its own.
            source: the corpus: its path in repo, or a place or name that `ingest` knows.
            revision: the branch, tag or commit of repo; empty = its default branch.
            branch: the branch that releases are committed to; empty = the repository's default.
            fine_tune_above: the share of texts that came or went above which the retriever is trained.
            pretrain_above: the share above which the encoder is pre-trained again, first.
            measure: the measure by which the challenger is compared with the release in use.
            alpha: the challenger is refused when it is worse with a p-value of at most this.
            most_loss: it is refused when the mean falls by more than this, shown or not.
            again: try a corpus again whose challenger was refused.
        """
        shared: dict[str, PipelineTask] = {}
        given = {"repo": repo, "source": source, "revision": revision}
        for use in BEFORE:
            shared[use.name] = make_task(
                use, _settings(use, settings) | (given if use.name == "ingest" else {}), shared
            )
        asked = {
            "releases": releases,
            "branch": branch,
            "recipe": fixed,
            "fine_tune_above": fine_tune_above,
            "pretrain_above": pretrain_above,
            "measure": measure,
            "alpha": alpha,
            "most_loss": most_loss,
        }
        corpus = {
            "corpus": shared["ingest"].outputs["corpus"],
            "validation": shared["validate"].outputs["validation"],
        }
        planned = plan_refresh(**corpus, **asked, again=again).set_display_name("plan")
        planned.set_caching_options(False)  # what is released can change while its repository's address stays
        shared[CHAMPION] = planned
        for rung in (Rung.INDEX, Rung.FINE_TUNE, Rung.PRETRAIN):
            with dsl.If(planned.outputs["rung"] == str(rung), name=str(rung).replace("_", "-")):
                tasks = dict(shared)
                for use in uses_of(rung):
                    tasks[use.name] = make_task(use, _settings(use, settings), tasks)
                made = _made(tasks)
                done = release_refresh(**made, **asked, champion=planned.outputs["champion"])
                done.set_display_name("promote").set_caching_options(False)

    return refresh


def _made(tasks: dict[str, PipelineTask]) -> dict[str, Any]:
    """What the tasks of a rung made, by the names of the inputs of `release_refresh`."""
    found = {}
    for port, place in MADE.items():
        use, output = place.split("/")
        if use in tasks:
            found[port] = tasks[use].outputs[output]
    return found


def _settings(use: Use, settings: dict[str, Any]) -> dict[str, Any]:
    config = settings[use.section]
    return {field: getattr(config, field) for field in field_types(use.step.config)}
