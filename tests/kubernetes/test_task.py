"""The body of a Kubeflow task: its steps run in order, and finished steps do not run again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from stillhouse.artifacts import read_manifest
from stillhouse.errors import CRASH, InputError, ValidationFailed
from stillhouse.kubernetes.pods.task import describe_use, run_task
from stillhouse.monitoring.settings import TASK
from stillhouse.releases.lineage import lineage
from stillhouse.steps import registry
from stillhouse.steps.spec import Report
from stillhouse.workflow.graph import find_uses


@dataclasses.dataclass
class Artifact:
    path: str
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        self.metadata[name] = value


OUTPUTS = ("ingest__corpus", "validate__validation", "validate__html", "bm25__run", "bm25__bm25")


def arguments(folder: Path, run: str = "r1", **changed: Any) -> dict[str, Any]:
    uses = [find_uses()[name] for name in ("ingest", "validate", "bm25")]
    steps = {use.name: describe_use(use, {}, use.step.config()) for use in uses}
    steps["ingest"]["chosen"] = {"seed": "seed"}
    values: dict[str, Any] = {"run_id": run, "steps": json.dumps(steps), "seed": 7}
    values |= {name: Artifact(str(folder / name)) for name in (*OUTPUTS, "metrics", "page")}
    return values | changed


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the steps that run. Each one writes its name, and checks that it is the name for its metrics."""
    import os

    ran: list[str] = []

    def stand_in(name: str) -> Any:
        def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
            assert os.environ[TASK] == name
            ran.append(name)
            for folder in outputs.values():
                (folder / "report.html").write_text(f"<p>{name} {getattr(config, 'seed', '')}</p>")
            return Report(f"{name} is made", {"made": 1.0}, {"passed": True}, html="report.html")

        return run

    for name in ("ingest", "validate", "bm25"):
        step = registry.steps()[name]
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(step, run=stand_in(name)))
    return ran


def breaks(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception | None, passed: bool = True) -> None:
    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        if error:
            raise error
        for folder in outputs.values():
            (folder / "report.html").write_text("<p>too short</p>")
        return Report("too short", {}, {"passed": passed, "failed": ["short"]}, html="report.html")

    monkeypatch.setitem(registry.steps(), name, dataclasses.replace(registry.steps()[name], run=run))


def test_steps_run_in_order_and_hand_over_what_others_read(tmp_path: Path, ran: list[str]) -> None:
    values = arguments(tmp_path)
    run_task("prepare", values)
    assert ran == ["ingest", "validate", "bm25"]
    corpus, run = (Path(values[name].path) for name in ("ingest__corpus", "bm25__run"))
    assert (corpus / "report.html").read_text() == "<p>ingest 7</p>", "the run's own setting"
    assert read_manifest(run).inputs["corpus"] == read_manifest(corpus).digest
    assert values["bm25__run"].metadata == lineage(run)
    assert Path(values["validate__html"].path).read_text() == "<p>validate </p>"
    figures = json.loads(Path(values["metrics"].path).read_text())
    assert figures == values["metrics"].metadata == {f"{name}/made": 1.0 for name in ran}
    page = Path(values["page"].path).read_text()
    assert [line.split(" | ")[0] for line in page.splitlines()[4:]] == [f"| {name}" for name in ran]
    assert "bm25 is made" in page and "made 1" in page


def test_finished_steps_of_an_earlier_try_are_not_repeated(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = registry.steps()["bm25"]
    breaks(monkeypatch, "bm25", RuntimeError("the node went away"))
    with pytest.raises(RuntimeError):
        run_task("prepare", arguments(tmp_path / "first"))
    monkeypatch.setitem(registry.steps(), "bm25", whole)
    again = arguments(tmp_path / "second")  # another pod, which shares only the work volume
    run_task("prepare", again)
    assert ran == ["ingest", "validate", "bm25"]
    assert (
        Path(again["ingest__corpus"].path, "report.html").is_file()
        and "earlier try" in Path(again["page"].path).read_text()
    )
    run_task("prepare", arguments(tmp_path / "third", run="r2"))
    assert ran == ["ingest", "validate", "bm25"] * 2, "another run looks at its source anew"


def test_a_corpus_that_does_not_pass_keeps_its_page_and_stops_the_next_task(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(monkeypatch, "validate", None, passed=False)
    values = arguments(tmp_path)
    run_task("prepare", values)
    assert ran == ["ingest"] and not Path(values["bm25__run"].path).exists()
    assert Path(values["validate__html"].path).read_text() == "<p>too short</p>"
    assert "bm25 | not done" in Path(values["page"].path).read_text()
    index = find_uses()["zero_shot_index"]
    logged = {"run_id": "r1", "steps": json.dumps({index.name: describe_use(index, {}, index.step.config())})}
    with pytest.raises(SystemExit) as end:
        run_task("first_retriever", logged | {"validate__validation": values["validate__validation"]})
    assert end.value.code == ValidationFailed.exit_code != CRASH
    assert "did not pass validation (short)" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "settings_of"), [("bm25", ""), ("of_titles", "bm25")])
def test_an_error_of_a_step_names_what_the_user_edits(
    name: str,
    settings_of: str,
    tmp_path: Path,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    breaks(monkeypatch, "bm25", InputError("--negatives-depth does not fit --corpus; see `bm25 --help`"))
    values = arguments(tmp_path)
    steps = json.loads(values["steps"])
    del steps["bm25"]
    use = dataclasses.replace(find_uses()["bm25"], name=name, settings_of=settings_of)
    steps[name] = describe_use(use, {}, use.step.config())
    with pytest.raises(SystemExit) as end:
        run_task("prepare", values | {"steps": json.dumps(steps)})
    assert end.value.code == InputError.exit_code
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"stillhouse: recipe: bm25: bm25.negatives_depth does not fit stages.{name}.corpus; see `bm25 --help`"
    )


def test_settings_are_described_in_the_recipes_spelling(ran: list[str]) -> None:
    use = find_uses()["retriever_1"]
    section = {"learning_rate": "2e-5", "epochs": 3}
    config = dataclasses.replace(use.step.config(), learning_rate=1e-3, epochs=3.0, seed=9)
    assert describe_use(use, section, config) == {"section": section, "other": {"learning_rate": 1e-3, "seed": 9}}
