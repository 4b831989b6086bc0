"""The scale benchmark with ten thousand passages: every task checks itself, and the page shows the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark with its tasks in this process."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import scale

    def run_alone(_: Path, words: list[str], **environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        arguments = dict(zip(words[1::2], words[2::2]))
        task, which = words[words.index("--task") + 1 :]
        size = int(arguments["--passages"])
        place = scale.Place(Path(arguments["--folder"]) / f"{size}", size, 16, 2, Path(arguments["--data"]), 16)
        return scale.measure(lambda: scale.TASKS[task](place, which)) | {"load": 0.0}

    monkeypatch.setattr(scale, "run_alone", run_alone)
    return scale


def test_every_step_holds_at_ten_thousand_passages(scale: Any, tmp_path: Path, data: Path) -> None:
    folder, page = tmp_path / "build", tmp_path / "scale.md"
    words = ["--folder", str(folder), "--data", str(data), "--passages", "10000", "--width", "16", "--shards", "2"]
    words += ["--memory-mib", "16", "--page", str(page)]
    assert scale.main(["run", *words]) == 0
    results = scale.read_results(folder)
    tasks = [(row["task"], row["passages"]) for row in results]
    assert len(tasks) == len(set(tasks)) and {size for _, size in tasks} == {1000, 10_000}
    assert {task.split()[0] for task, _ in tasks} == {task.split()[0] for task in scale.TASKS}
    assert min(row["recall"] for row in results if row["task"] == "search sq8") > 0.9
    assert [path.name for path in folder.iterdir()] == ["results.json"]
    assert scale.main(["run", *words]) == 0 and scale.read_results(folder) == results
    assert scale.main(["page", *words]) == 0
    text = page.read_text(encoding="utf-8")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert sum("bounded" in line or "promised" in line for line in tables) == len({task for task, _ in tasks}) - 3
    assert "**GPU-hours, arithmetic**: encoding" in text
    rates = json.loads((tmp_path / "scale.measured.json").read_text(encoding="utf-8"))
    [ingest] = [row for row in results if (row["task"], row["passages"]) == ("ingest JSONL", 10_000)]
    assert rates["ingest"]["value"] == pytest.approx(10_000 / ingest["processor"], rel=1e-3)


def test_a_wrong_corpus_is_detected(scale: Any, tmp_path: Path) -> None:
    """With one passage too few in the source, the task fails."""
    place = scale.Place(tmp_path, 1000, 16, 2, tmp_path)
    scale.TASKS["source"](place, "")
    lines = place.source.read_text(encoding="utf-8").splitlines(keepends=True)
    place.source.write_text("".join(lines[1:]), encoding="utf-8")
    with pytest.raises(AssertionError):
        scale.TASKS["ingest JSONL"](place, "")


def test_computed_operations_equal_those_counted_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import scale_on_paper

    config = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256, vocab_size=99
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(torch.ones(1, 20, dtype=torch.long))
    assert scale_on_paper.passage_operations({"layers": 2, "width": 64}, 20) == counter.get_total_flops()


def test_memory_that_grows_beyond_its_bound_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import scale_page

    settings = {"smaller": 1000, "passages": 11_000, "width": 64, "memory_mib": 1}
    for bytes_a_passage, verdict in ((290, "bounded"), (310, "more than promised")):
        rows = [
            {"task": "validate", "passages": size, "own": 50 + size * bytes_a_passage / 2**20}
            for size in (1000, 11_000)
        ]
        assert verdict in list(scale_page.checked(rows, settings))[-1]


def test_rates_of_steps_with_a_model_come_onto_the_page_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    """The table "On paper" shows them, everything else stays, and a step without its data set is left out."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import scale
    import scale_models

    monkeypatch.setattr(scale_models, "TOKENIZED", 150)

    def run_alone(_: Path, words: list[str], **__: str) -> dict[str, Any]:
        task = words[words.index("--task") + 1]
        (tmp_path / task).mkdir()
        found = scale_models.TASKS[task][0](tmp_path / task, data)
        assert found["tokens"] > 150 * 20  # 28 words each
        return found | {"processor": 0.5, "tokens": 1000}

    monkeypatch.setattr(scale, "run_alone", run_alone)
    page, rates = tmp_path / "scale.md", tmp_path / "scale.measured.json"
    page.write_text("# Ten\n\nbefore\n\n## On paper\n\nof yesterday\n", encoding="utf-8")
    rates.write_text('{"ingest": {"value": 9.0, "unit": "passages", "source": "run"}}', encoding="utf-8")
    words = ["--folder", str(tmp_path / "build"), "--data", str(data), "--page", str(page)]
    assert scale.main(["models", *words]) == 0
    known = json.loads(rates.read_text(encoding="utf-8"))
    assert list(known) == ["ingest", "tokenize"] and known["tokenize"]["value"] == 2000
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Ten\n\nbefore\n\n## On paper\n") and "yesterday" not in text
    [row] = [line for line in text.splitlines() if line.startswith("| hours of a core: `tokenize`")]
    assert row.split("|")[2].strip() == f"{1e5 * 70 / 2000 / 3600:.2g}"
    assert "hours of a core: teacher scores" not in text and "**GPU-hours, arithmetic**: teacher scores" in text


def test_operations_on_paper_of_scoring_and_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by hand for one query: 2 scored pairs; a query and 3 passages, forward and twice as much backward."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import scale_on_paper

    encoder = {"layers": 1, "width": 10}
    assumed = {
        "encoder": encoder,
        "tokens": {"pair": 7, "query": 2, "passage": 5},
        "queries": {"for_passages": 4, "passages": 3, "scored": 2},
    }

    def forward(
        tokens: int,
    ) -> int:  # matrices of attention and feed-forward; tokens by tokens
        return 2 * tokens * (4 + 4 + 4) * 10**2 + 2 * 2 * tokens**2 * 10

    score, train = scale_on_paper.learned_operations(assumed).values()
    assert score == ("score", 2 * forward(7) / 4)
    assert train == ("train", 3 * (forward(2) + 3 * forward(5)) / 4)
