"""Parallel steps with several processes: their number, their command, and the same results as with one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import digest_files
from stillhouse.core.config import build
from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.pods import several_processes
from stillhouse.kubeflow.pods.several_processes import PROCESSES, execute_together, processes_for, step_words
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.pipeline.steps.registry import find_step, steps

SMALL_CHUNKS = """
import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path


class Smaller(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "stillhouse.pipeline.steps.score_pairs":
            sys.meta_path.remove(self)
            from stillhouse.models import cross_encoder

            cross_encoder.PAIRS_AT_ONCE = 40
            Path(__file__).with_name(f"read-by-{os.getpid()}").touch()


sys.meta_path.insert(0, Smaller())
"""


def test_only_parallel_steps_use_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESSES, "4")
    assert processes_for(find_step("encode")) == 4 and processes_for(find_step("mine")) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes_for(find_step("encode")) == 1, "torchrun started this process already"


def test_the_command_names_every_folder_and_setting(tmp_path: Path) -> None:
    step = find_step("pretrain")
    config = build(step.config, {"learning_rate": 1e-4, "seed": 7}, "test")
    words = step_words(step, config, {"tokens": tmp_path / "t"}, {"encoder": tmp_path / "e"})
    assert words[0] == "pretrain" and "--nproc-per-node=3" in several_processes.by_torchrun(words, 3)
    folders = {f"--tokens={tmp_path / 't'}", f"--encoder={tmp_path / 'e'}"}
    assert folders | {"--learning-rate=0.0001", "--seed=7"} <= set(words)
    assert not [word for word in words if word.startswith("--importance=")], "an input that is not given"


@pytest.mark.parametrize("name", [name for name, step in steps().items() if step.parallel])
def test_torchrun_does_not_consume_the_flags_of_a_step(name: str, tmp_path: Path) -> None:
    from torch.distributed.run import parse_args

    step = find_step(name)
    own = step_words(step, build(step.config, {}, "test"), {}, {step.outputs[0].name: tmp_path})
    words = several_processes.by_torchrun(own, 2)
    read = parse_args(words[words.index("stillhouse.kubeflow.pods.torchrun") + 1 :])
    assert (read.nproc_per_node, read.module, read.training_script) == ("2", True, "stillhouse.cli")
    assert read.training_script_args == own


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_compute_the_same_scores_as_one(
    run_step: Callable[..., dict[str, Path]], small_corpus: Path, tiny_model: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """The processes score in chunks of 40 pairs: `sitecustomize` sets this smaller size when they start."""
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(SMALL_CHUNKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "path"), os.environ.get("PYTHONPATH", "")]))
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)["negatives"]
    CrossEncoder.start(tiny_model, 32).save(tmp_path / "reranker")
    inputs = {"corpus": small_corpus, "negatives": negatives, "reranker": tmp_path / "reranker"}
    step = find_step("score-pairs")
    config = build(step.config, {"precision": "fp32", "batch_tokens": 128}, "test")
    made = {number: tmp_path / str(number) / "teacher" for number in (1, 2)}
    reports = [execute_together(step, config, inputs, {"teacher": folder}, number) for number, folder in made.items()]
    assert [report.facts["pairs"] for report in reports] == [126, 126]
    assert digest_files(made[1]) == digest_files(made[2])
    assert len(list((tmp_path / "path").glob("read-by-*"))) == 3, "all processes had chunks of 40"


@pytest.mark.slow
@pytest.mark.parametrize(("why", "error"), [("bad input", InputError), ("a crash", CrashElsewhere)])
def test_bad_input_of_a_process_is_distinguished_from_a_crash(
    why: str, error: type[Exception], small_corpus: Path, tiny_model: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    step, model = find_step("encode"), tmp_path / "model"
    if why == "a crash":  # a broken library is not the fault of the input
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "transformers.py").write_text("raise RuntimeError('broken')\n")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "broken"), os.environ.get("PYTHONPATH", "")]))
        model = tiny_model
    with pytest.raises(error, match="failed in one of 2 processes"):
        outputs = {"vectors": tmp_path / "vectors"}
        execute_together(step, build(step.config, {}, "test"), {"corpus": small_corpus, "retriever": model}, outputs, 2)
