"""Components and laptops share one run cache: each reuses the other's work, but only if it is the same."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl
from pods import USES, Pod, content
from repositories import dvc, repro, run_context

from stillhouse import environment
from stillhouse.artifacts import read_manifest, write_manifest
from stillhouse.config import build
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE
from stillhouse.pipelines.local import run_pipeline
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.releases import run_cache
from stillhouse.steps import registry
from stillhouse.steps.execute import read_report
from stillhouse.workflow.graph import ARTIFACTS
from stillhouse.workflow.recipes import load_recipe
from stillhouse.workflow.tasks import tasks_of

Runs = list[str]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Return the list of the steps that really run in this process, in their order."""
    ran: Runs = []

    def counted(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            ran.append(name)
            return run(*arguments)

        return wrapped

    for name, step in list(registry.steps().items()):
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(step, run=counted(name, step.run)))
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)  # tests read the lines about the run cache
    return ran


@pytest.fixture
def pod(laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    """Return a pod with its own run cache, a copy of what the laptop pushed."""
    shutil.copytree(laptop.parent / "shelf", tmp_path / "shelf")
    monkeypatch.setattr(run_cache, "SECONDS", 600.0)  # long enough for a busy CPU
    return Pod(laptop, tmp_path, tmp_path / "shelf", monkeypatch)


def test_a_component_reuses_the_results_of_a_laptop(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """kfp's runner starts the task in its own process, where the library that the step computes with is broken."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "great_expectations.py").write_text("raise ImportError('broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"), prepend=":")
    monkeypatch.delenv("STILLHOUSE_QUIET")
    monkeypatch.setenv(RUN_CACHE, str(tmp_path / "nothing"))
    recipe, use = load_recipe(laptop / "params.yaml"), USES["validate"]

    @dsl.pipeline(name="one")
    def pipeline():
        corpus = dsl.importer(artifact_uri=str(laptop / ARTIFACTS / "ingest" / "corpus"), artifact_class=dsl.Dataset)
        config = build(use.step.config, recipe["validate"], "validate")
        [task] = tasks_of([use])
        add_task(task, {"validate": config}, {}, {"ingest/corpus": corpus.output}, Pods(recipe=recipe))

    run_pipeline(pipeline, {}, tmp_path / "refused")
    logged = "".join(capfd.readouterr())
    assert "never done before" in logged and "ImportError: broken" in logged, "it cannot be done here"
    assert not list(tmp_path.glob("refused/outputs/*/prepare/validate__html"))
    monkeypatch.setenv(RUN_CACHE, str(laptop.parent / "shelf"))
    run_pipeline(pipeline, {}, tmp_path / "taken")
    [outputs] = tmp_path.glob("taken/outputs/*/prepare")
    made = laptop / ARTIFACTS / "validate" / "validation"
    assert content(outputs / "validate__validation") == content(made)
    assert (outputs / "validate__html").read_bytes() == (made / "report.html").read_bytes()
    report = read_report(laptop / ARTIFACTS / "validate" / "report.json", {})
    figures = json.loads((outputs / "metrics").read_text())
    assert figures == {f"validate/{name}": value for name, value in report.metrics.items()} and figures


def test_a_laptop_reuses_the_results_of_a_component(pod: Pod, runs: Runs, tmp_path: Path) -> None:
    made = pod.run("bm25")
    assert runs == ["bm25"]
    folder = tmp_path / "checkout"
    (folder / ".dvc").mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml", ".dvc/config", ".dvcignore"):
        shutil.copyfile(pod.laptop / name, folder / name)
    dvc(folder, "remote", "modify", "shelf", "url", str(pod.cache))
    assert repro(folder, "bm25") == ([], ["ingest", "validate", "bm25"])
    for output in ("run", "negatives"):
        assert content(folder / ARTIFACTS / "bm25" / output) == content(made[output].path)


def test_a_component_reuses_the_results_of_a_component(
    pod: Pod, runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pod.run("validate"), pod.run("bm25")
    assert runs == ["bm25"], "the laptop did the other"
    capsys.readouterr()
    again = pod.run("validate"), pod.run("bm25")
    assert runs == ["bm25"]
    assert f"[bm25] taken from the run cache {pod.cache}; BM25 over" in capsys.readouterr().err
    for one, other in zip(made, again):
        for name in one.keys() - {"corpus"}:
            assert one[name].metadata == other[name].metadata, name
        assert untimed(Path(one["metrics"].path).parent) == untimed(Path(other["metrics"].path).parent)
    assert all(path.stat().st_mode & 0o200 for path in Path(again[1]["run"].path).iterdir()), "they are no links"
    monkeypatch.delenv("STILLHOUSE_RUN_CACHE")
    pod.cache = ""
    pod.run("bm25")
    assert runs == ["bm25"] * 2, "without a run cache it is as ever"


def untimed(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the seconds that the page of a task shows."""
    return {name: re.sub(rb"\| \d+ s \|", b"|", text) for name, text in content(folder).items()}


def another_corpus(pod: Pod) -> dict[str, Path]:
    """Return a copy of the corpus with other texts, and its validation."""
    import pyarrow.parquet as pq

    folders = {name: pod.folder / "changed" / name for name in ("corpus", "validation")}
    for use, name in (("ingest", "corpus"), ("validate", "validation")):
        shutil.copytree(pod.laptop / ARTIFACTS / use / name, folders[name])
    path = folders["corpus"] / "passages.parquet"
    table = pq.read_table(path)
    texts = [text.replace("the", "a") for text in table["text"].to_pylist()]
    number = table.schema.get_field_index("text")
    pq.write_table(table.set_column(number, table.schema.field(number), [texts]), path)
    for name, inputs in (("corpus", {}), ("validation", {"corpus": ""})):
        manifest = read_manifest(folders[name], verify=False)
        made_of = {port: read_manifest(folders[port]).digest for port in inputs}
        write_manifest(folders[name], manifest.step, manifest.config, made_of, manifest.facts)
    return folders


def another_library(pod: Pod) -> dict[str, Path]:
    """Add package metadata of another NumPy version, which is found before the real one."""
    record = pod.folder / "packages" / "numpy-99.0.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0.0\n")
    pod.monkeypatch.syspath_prepend(record.parent)
    pod.monkeypatch.setattr(environment, "libraries", environment.libraries.__wrapped__)  # uncached as in a new pod
    return {}


CHANGES: dict[str, Callable[[Pod], dict[str, Any]]] = {
    "a parameter": lambda pod: {"negatives_depth": 5},
    "an input": another_corpus,
    "a library": another_library,
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_inputs_and_settings_are_always_noticed(what: str, pod: Pod, runs: Runs) -> None:
    pod.run("bm25")
    changed = CHANGES[what](pod)
    pod.run("bm25", **changed)
    assert runs == ["bm25"] * 2
    pod.run("bm25", **changed)
    assert runs == ["bm25"] * 2, "the change itself is known from now on"


def test_a_failed_validation_is_not_saved(pod: Pod, runs: Runs) -> None:
    before = content(pod.cache)
    made = pod.run("validate", min_passages=1_000_000)
    assert read_manifest(Path(made["validation"].path)).facts["passed"] is False
    assert runs == ["validate"] and content(pod.cache) == before


def test_an_s3_bucket_is_as_good_as_a_folder(
    pod: Pod, runs: Runs, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3["endpointurl"])
    pod.cache = s3["url"]
    made = pod.run("bm25"), pod.run("bm25")
    assert runs == ["bm25"]
    assert content(made[0]["run"].path) == content(made[1]["run"].path)


def silent() -> Iterator[str]:
    """Yield the address of an S3 server that accepts every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_remote_that_never_answers_costs_only_a_log_line(
    pod: Pod, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dvc_s3", reason="the extra `s3` is not installed")
    monkeypatch.setattr(run_cache, "SECONDS", 0.5)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for endpoint in silent():
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        pod.cache = "s3://bucket/cache"
        made = pod.run("bm25")
    assert runs == ["bm25"] and read_manifest(Path(made["run"].path))
    logged = capsys.readouterr().err
    assert "[bm25] the run cache s3://bucket/cache cannot be read (no answer in " in logged
    assert "[bm25] not saved to the run cache s3://bucket/cache (no answer in " in logged


def test_a_missing_remote_costs_only_a_log_line(pod: Pod, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    (pod.folder / "file").write_text("no folder")
    for cache in (pod.folder / "file" / "shelf", "nowhere://shelf"):
        pod.cache = cache
        made = pod.run("bm25")
        assert read_manifest(Path(made["run"].path))
        assert f"not saved to the run cache {cache} (" in capsys.readouterr().err
    assert runs == ["bm25"] * 2


def cut(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-7])
        path.chmod(0o444)


def stored(cache: Path, file: Path) -> Path:
    """Return the path at which a remote keeps a file."""
    from stillhouse.releases.lineage import dvc_digest

    digest = dvc_digest(file)
    return cache / "files" / "md5" / digest[:2] / digest[2:]


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "a file cut off": lambda cache, folder: cut(stored(cache, next(folder.glob("*.parquet")))),
    "a file gone": lambda cache, folder: stored(cache, next(folder.glob("*.parquet"))).unlink(),
    "the list of files cut off": lambda cache, folder: cut(stored(cache, folder)),
    "what was done cut off": lambda cache, folder: cut(*cache.glob("runs/*/*/*")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_detected_and_replaced(damage: str, pod: Pod, runs: Runs) -> None:
    made = Path(pod.run("bm25")["negatives"].path)
    DAMAGES[damage](Path(pod.cache), made)
    assert content(pod.run("bm25")["negatives"].path) == content(made)
    assert runs == ["bm25"] * 2
    assert content(pod.run("bm25")["negatives"].path) == content(made)
    assert runs == ["bm25"] * 2, "the next one finds it whole"


def test_an_entry_saved_under_a_false_key_is_not_used(pod: Pod, runs: Runs, tmp_path: Path) -> None:
    """A manifest records how its folder was made, whatever the run cache says."""
    pod.run("bm25", negatives_depth=5)
    [entry] = [path for path in Path(pod.cache).glob("runs/*/*/*") if "negatives_depth: 5" in path.read_text()]
    pod.run("bm25")
    [other] = [path for path in Path(pod.cache).glob("runs/*/*/*") if "negatives_depth: 8" in path.read_text()]
    false = yaml.safe_load(other.read_text()) | {"outs": yaml.safe_load(entry.read_text())["outs"]}
    other.chmod(0o644)
    other.write_text(yaml.safe_dump(false))
    made = pod.run("bm25")
    assert runs == ["bm25"] * 3
    assert read_manifest(Path(made["negatives"].path)).config["negatives_depth"] == 8


@pytest.fixture
def volume(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a volume with free space for unfinished work and the pod's run cache, as in the shipped placements."""
    room = shutil.disk_usage(pod.folder)._replace(total=1 << 40, used=1 << 39, free=1 << 39)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    monkeypatch.setenv("STILLHOUSE_WORK", str(pod.folder / "volume"))
    pod.cache = pod.folder / "volume" / "run-cache"
    return pod.folder / "volume"


def test_the_run_cache_of_the_work_area_stays_below_its_limit(
    pod: Pod, runs: Runs, volume: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Removed work is done again; work that does not fit is not saved, and the step still succeeds."""
    other = {"k1": 0.5, "negatives_depth": 5}  # shares no file, so it is lost when the first file is removed
    pod.run("bm25", **other)
    size = sum(map(len, content(volume / "run-cache").values()))
    monkeypatch.setenv("STILLHOUSE_RUN_CACHE_GIB", str(1.5 * size / 1024**3))
    pod.run("bm25")
    assert sum(map(len, content(volume / "run-cache").values())) < 1.5 * size
    pod.run("bm25")
    assert runs == ["bm25"] * 2, "the later one is there"
    pod.run("bm25", **other)
    assert runs == ["bm25"] * 3, "the one before went"
    monkeypatch.setenv("STILLHOUSE_RUN_CACHE_GIB", "0")
    made = pod.run("bm25", negatives_depth=6)
    assert read_manifest(Path(made["run"].path))
    assert "not saved to the run cache" in capsys.readouterr().err


def test_a_model_is_taken_while_its_files_are_the_same(pod: Pod, runs: Runs, tiny_model: Path, tmp_path: Path) -> None:
    """The name of a model says nothing about its files."""
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    first, again = (Path(pod.run("fetch_model", model=str(model))["encoder"].path) for _ in range(2))
    assert runs == ["fetch-model"] and content(first) == content(again)
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | {"hidden_dropout_prob": 0.25}))
    changed = Path(pod.run("fetch_model", model=str(model))["encoder"].path)
    assert runs == ["fetch-model"] * 2
    assert json.loads((changed / "config.json").read_text())["hidden_dropout_prob"] == 0.25


WRONG_POD: dict[str, tuple[dict[str, str], str]] = {
    "a limit that is no number": ({"STILLHOUSE_RUN_CACHE_GIB": "much"}, "not saved to the run cache"),
}


@pytest.mark.parametrize("what", WRONG_POD)
def test_a_pod_with_wrong_variables_works_without_the_run_cache(
    what: str,
    pod: Pod,
    runs: Runs,
    volume: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variables, said = WRONG_POD[what]
    monkeypatch.setattr(pod, "monkeypatch", _Fixed(monkeypatch, variables))
    made = pod.run("bm25")
    assert read_manifest(Path(made["run"].path)) and runs == ["bm25"]
    assert said in capsys.readouterr().err


@dataclasses.dataclass
class _Fixed:
    """Sets variables, of which those in `variables` always have a fixed value."""

    patch: pytest.MonkeyPatch
    variables: dict[str, str]

    def setenv(self, name: str, value: str) -> None:
        for own, text in ({name: value} | self.variables).items():
            self.patch.setenv(own, text)

    def chdir(self, place: Path) -> None:
        self.patch.chdir(place)


def test_an_image_without_dvc_works_without_the_run_cache(
    pod: Pod, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dvc", None)
    pod.run("bm25")
    assert runs == ["bm25"]
    assert f"[bm25] the run cache {pod.cache} cannot be used (import of dvc halted" in capsys.readouterr().err


def test_pods_share_a_folder_at_the_same_time(pod: Pod, volume: Path, tmp_path: Path) -> None:
    """Two pods save and restore two stages in turn, with room for only one: both succeed, with the right content."""
    made = {depth: pod.run("bm25", negatives_depth=depth)["negatives"].path for depth in (5, 6)}
    expected = {depth: read_manifest(Path(folder)).digest for depth, folder in made.items()}
    shutil.rmtree(volume / "run-cache")
    pod.run("bm25", negatives_depth=5)
    room = sum(map(len, content(volume / "run-cache").values())) + 1000
    program = """
import sys
from pathlib import Path
import pytest
from pods import Pod
from stillhouse.artifacts import read_manifest
laptop, folder, cache, *depths = sys.argv[1:]
with pytest.MonkeyPatch.context() as patch:
    pod = Pod(Path(laptop), Path(folder), cache, patch)
    for depth in depths:
        made = pod.run("bm25", negatives_depth=int(depth))
        print(read_manifest(Path(made["negatives"].path)).digest)
"""
    environment = run_context(PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    started = {
        depths: subprocess.Popen(
            [sys.executable, "-c", program, pod.laptop, tmp_path / f"of{depths}", volume / "run-cache", *depths],
            env=environment | {"STILLHOUSE_RUN_CACHE_GIB": str(room / 1024**3)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for depths in ("565", "656")
    }
    for depths, process in started.items():
        assert process.communicate(timeout=600)[0].split() == [expected[int(depth)] for depth in depths]
        assert process.returncode == 0
    assert sum(map(len, content(volume / "run-cache").values())) < 2 * room, "each makes room for itself"
    assert not list((volume / "run-cache").rglob("*.tmp")), "nothing is left half written"
