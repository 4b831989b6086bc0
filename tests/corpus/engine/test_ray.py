"""Ray's processes write the same files as one process, even if some are killed. All tests here share one Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core import context
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import CrashElsewhere
from stillhouse.corpus import cleaning_parts
from stillhouse.corpus.engine import ray_engine
from stillhouse.corpus.engine.ray_engine import RayEngine, open_engine
from stillhouse.pipeline.steps import ingest, tokenize
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step

pytest.importorskip("ray", reason="ray, of the extra `dev`, is not installed; `make install` gets it")


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """Start Ray with two processes, which find the functions of this file through `PYTHONPATH`."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    os.environ.pop("RAY_ADDRESS", None)
    try:
        with open_engine("ray:2"):
            yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(context.WORK_ROOT, str(tmp_path / "work"))
    monkeypatch.setattr(ingest, "PART_BYTES", 9000)
    monkeypatch.setattr(tokenize, "ROWS", 40)


def run(step: str, inputs: dict[str, Path], outputs: dict[str, Path], **settings: Any) -> Any:
    found = find_step(step)
    return execute(found, found.config(**settings), inputs, outputs)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_a_corpus_and_its_tokens_are_those_of_one_process(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests and their digests are equal too: no output depends on the engine."""
    for engine in ("local", "ray"):
        monkeypatch.setenv(context.ENGINE, engine)
        run("ingest", {}, {"corpus": tmp_path / engine / "corpus"}, source="sample", queries="source")
        inputs = {"corpus": tmp_path / engine / "corpus", "tokenizer": tiny_model}
        run("tokenize", inputs, {"tokens": tmp_path / engine / "tokens"})
    for output in ("corpus", "tokens"):
        assert files(tmp_path / "local" / output) == files(tmp_path / "ray" / output)
    assert read_manifest(tmp_path / "ray" / "tokens").facts["passages"] > 200


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_remote_processes_read_only_the_work_area(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = passages(tmp_path / "source")
    run("ingest", {}, {"corpus": tmp_path / "corpus"}, source=str(source))
    inputs = {"corpus": tmp_path / "corpus", "tokenizer": tiny_model}
    run("tokenize", inputs, {"tokens": tmp_path / "local"})
    read: list[Path] = []

    def each(engine: Any, function: Any, items: Any) -> Iterator[Any]:
        read.extend([function.args[1].corpus, function.args[1].tokenizer])
        return map(function, items)

    monkeypatch.setattr(RayEngine, "each", each)
    monkeypatch.setattr(ray_engine, "_address", lambda name: "ray://elsewhere:10001")
    monkeypatch.setenv(context.ENGINE, "ray")
    run("tokenize", inputs, {"tokens": tmp_path / "ray"})
    assert len(read) == 2 and all(path.is_relative_to(tmp_path / "work") for path in read)
    assert files(tmp_path / "local") == files(tmp_path / "ray")


def passages(folder: Path, *more: str) -> Path:
    folder.mkdir()
    lines = [json.dumps({"_id": f"p{n}", "title": "T", "text": f"text {n} " * 20}) for n in range(300)]
    (folder / "corpus.jsonl").write_text("\n".join([*lines, *more]) + "\n")
    return folder


def kill_once(mark: Path, function: Callable[[Any], Any], item: Any) -> Any:
    """On the first call, write half of a part and kill this process; after that, call `function`."""
    from stillhouse.corpus.cleaning_parts import part_folder

    if not mark.exists():
        mark.touch()
        if isinstance(item, tuple):
            with part_folder(mark.parent / "half") as staging:
                (staging / "passages.arrow").write_text("half")
                os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return function(item)


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_a_killed_process_costs_only_its_part(tmp_path: Path) -> None:
    from functools import partial

    from test_ray import kill_once  # Ray's processes import it by this name

    from stillhouse.corpus.ingestion import ingest_source
    from stillhouse.corpus.settings import IngestSettings
    from stillhouse.corpus.sources.detect import open_source

    source = passages(tmp_path / "source")
    choices = IngestSettings(queries="source", dev_fraction=0)
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    calm = ingest_source(open_source(str(source)), choices, tmp_path / "calm")
    with open_engine("ray") as engine:
        assert engine is not None

        def each(function: Any, items: Any) -> Any:
            return engine.each(partial(kill_once, tmp_path / "mark", function), items)

        several = cleaning_parts.Several(each, tmp_path / "work", part_bytes=9000)
        killed = ingest_source(open_source(str(source)), choices, tmp_path / "killed", several=several)
    assert (tmp_path / "mark").exists() and list(tmp_path.glob(".half.*"))
    assert killed == calm and files(tmp_path / "calm") == files(tmp_path / "killed")


def die(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_a_part_that_always_kills_its_process_ends_with_a_message() -> None:
    from test_ray import die

    with open_engine("ray") as engine, pytest.raises(CrashElsewhere, match=r"killed 4 times .* Run the step again"):
        assert engine is not None
        list(engine.each(die, [1]))


def slow_first(item: int) -> int:
    import time

    time.sleep(0.3 if item == 0 else 0)
    return item * item


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_results_come_in_order() -> None:
    from test_ray import slow_first

    with open_engine("ray") as engine:
        assert engine is not None
        assert list(engine.each(slow_first, range(20))) == [n * n for n in range(20)]


def fail_first(item: int) -> int:
    import time

    if item == 0:
        raise OSError("the first one fails")
    time.sleep(0.01 * item)
    return item


@pytest.mark.long
@pytest.mark.usefixtures("ray")
def test_calls_that_end_after_an_error_do_not_end_this_process() -> None:
    """Ray can abort a process that cancels a call just as the call ends."""
    from test_ray import fail_first

    with open_engine("ray") as engine:
        assert engine is not None
        for _ in range(20):
            with pytest.raises(OSError, match="the first one fails"):
                list(engine.each(fail_first, range(10)))
        assert list(engine.each(fail_first, range(1, 5))) == [1, 2, 3, 4]


ALONE = """
import sys
if {absent}: sys.modules["ray"] = None
from stillhouse.cli import main
status = main(["ingest", "--source", "sample", "--corpus", {corpus!r}, "--quiet", *{more}])
print("ray" in sys.modules and sys.modules["ray"] is not None)
sys.exit(status)
"""


def ingest_alone(tmp_path: Path, absent: bool, *more: str) -> subprocess.CompletedProcess[str]:
    code = ALONE.format(absent=absent, corpus=str(tmp_path / "corpus"), more=more)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)


def test_one_process_imports_no_engine(tmp_path: Path) -> None:
    done = ingest_alone(tmp_path, False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False")


@pytest.mark.parametrize(
    ("engine", "said"),
    [("ray", "needs Ray: pip install 'stillhouse[ray]'"), ("spark", "engine is 'spark'; give local, ray, ray:N")],
)
def test_an_unavailable_engine_is_reported_in_a_sentence(engine: str, said: str, tmp_path: Path) -> None:
    done = ingest_alone(tmp_path, True, "--engine", engine)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "corpus").exists()


def test_only_divisible_steps_have_the_engine_flag() -> None:
    from stillhouse.pipeline.step_command import step_parser

    having = {
        name for name in ("ingest", "tokenize", "mine") if "--engine" in step_parser(find_step(name)).format_help()
    }
    assert having == {"ingest", "tokenize"}
