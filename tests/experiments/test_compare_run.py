"""A comparison runs each part of its plan once, reruns only missing parts, and continues if a variant fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from quick_steps import quicken_steps

from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.plan import make_plan
from stillhouse.experiments.comparison.run import Failure, Runner
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.pipeline.graph import ARTIFACTS, SIMLM_STEPS
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.recipes import configs

VARIANTS = [
    {"name": "none", "pretraining": False},
    {"name": "mlm", "overrides": {"pretraining.objective": "mlm"}},
    {"name": "bow", "overrides": {"pretraining.objective": "bow"}},
]
RECIPE = {"lm_head": {"objective": "mlm"}}
OUTSIDE = ["fetch-model", "fetch-model"]
"""Steps that run again each time: nobody can know here what a name on the Hub holds now."""


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of steps as they run."""
    executed: list[str] = []

    def note(name: str, config: Any) -> None:
        executed.append(name)
        if getattr(config, "objective", "") == broken.get("objective"):
            raise broken["error"]

    broken.clear()
    quicken_steps(monkeypatch, note)
    return executed


broken: dict[str, Any] = {}


def compare(folder: Path, variants: Any = VARIANTS, seeds: tuple[int, ...] = (1, 2)) -> dict[tuple[str, int], Failure]:
    sweep = make_sweep("trial", {"variants": variants, "seeds": list(seeds)}, "trial")
    return Runner(folder).run(make_plan(sweep, RECIPE, "recipe"))


def data(folder: Path, place: str, name: str, port: str) -> str:
    return (folder / place / ARTIFACTS / name / port / "data.txt").read_text()


def test_shared_steps_run_once_and_others_per_variant_and_seed(ran: list[str], tmp_path: Path) -> None:
    assert compare(tmp_path) == {}
    counts = {name: ran.count(name) for name in set(ran)}
    assert counts == {
        **dict.fromkeys(["ingest", "validate", "tokenize", "importance", "bm25"], 1),
        "fetch-model": 2,  # the model and the generator
        "pretrain": 1 + 2 * 2,  # the language-model head, then two objectives under two seeds
        "train-retriever": 3 * 2,
        "index": 1 + 3 * 2,
        "retrieve": 1 + 3 * 2,
        "evaluate": 1 + 3 * 2,
    }
    ran.clear()
    assert compare(tmp_path) == {} and sorted(ran) == OUTSIDE
    ran.clear()
    compare(tmp_path, seeds=(1, 2, 3))
    assert ran.count("pretrain") == 2 and ran.count("tokenize") == 0


def test_runs_at_the_same_time_share_the_steps_of_each_other(ran: list[str], tmp_path: Path) -> None:
    plan = make_plan(make_sweep("trial", {"variants": VARIANTS, "seeds": [1]}, "trial"), RECIPE, "recipe")
    with ThreadPoolExecutor() as nodes:
        found = list(nodes.map(lambda job: Runner(tmp_path).run_job(job), plan.jobs))
    counts = {name: ran.count(name) for name in ("ingest", "tokenize", "importance", "bm25")}
    assert found == [None] * 3 and counts == dict.fromkeys(counts, 1)


def test_a_variant_equals_a_run_of_its_own(tmp_path: Path) -> None:
    compare(tmp_path / "compared")
    seeds = {name: {"seed": 2} for name in ("pretraining", "retriever_1", "retriever_1_unpretrained")}
    recipe = RECIPE | seeds | {"pretraining": {"seed": 2, "objective": "bow"}}
    run_steps(SIMLM_STEPS, configs(recipe, "recipe"), tmp_path / "alone" / ARTIFACTS)
    alone = {
        name: data(tmp_path / "alone", ".", name, port)
        for name, port in (
            ("pretraining", "encoder"),
            ("retriever_1_run", "run"),
            ("retriever_1_unpretrained_run", "run"),
        )
    }
    compared = tmp_path / "compared"
    assert data(compared, "bow/seed-2", "pretraining", "encoder") == alone["pretraining"]
    assert data(compared, "bow/seed-2", "retriever_1_run", "run") == alone["retriever_1_run"]
    assert data(compared, "none/seed-2", "retriever_1_run", "run") == alone["retriever_1_unpretrained_run"]


def test_a_variant_that_fails_is_reported_and_tried_again(ran: list[str], tmp_path: Path) -> None:
    broken.update(objective="bow", error=FloatingPointError("the loss is nan\nat step 3"))
    failed = Failure("pretraining", "FloatingPointError: the loss is nan at step 3", bad_input=False)
    assert compare(tmp_path) == {("bow", 1): failed, ("bow", 2): failed}
    assert ran.count("train-retriever") == 4
    broken.clear()
    ran.clear()
    assert compare(tmp_path) == {}
    assert ran.count("pretrain") == ran.count("train-retriever") == 2


def test_a_shared_step_that_fails_fails_all_that_need_it_once(ran: list[str], tmp_path: Path) -> None:
    broken.update(objective="mlm", error=InputError("no"))  # the language-model head is also trained with mlm
    failures = compare(tmp_path)
    assert set(failures) == {(name, seed) for name in ("mlm", "bow") for seed in (1, 2)}
    assert {(failure.step, failure.bad_input) for failure in failures.values()} == {("lm_head", True)}
    assert ran.count("pretrain") == 1


def test_a_changed_sweep_of_the_same_name_reuses_the_folder(ran: list[str], tmp_path: Path) -> None:
    """A step that belonged to one variant becomes shared, and the other way round."""
    four = {"name": "mlm", "overrides": {"pretraining.objective": "mlm", "tokenize.max_length": 32}}
    compare(tmp_path, [four], seeds=(1,))
    own = data(tmp_path, "mlm", "tokenize", "tokens")
    compare(tmp_path, seeds=(1,))
    assert data(tmp_path, "shared", "tokenize", "tokens") != own
    ran.clear()
    compare(tmp_path, [four], seeds=(1,))
    assert data(tmp_path, "mlm", "tokenize", "tokens") == own and "tokenize" not in ran
