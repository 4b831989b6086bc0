"""The benchmark of training speed: its arithmetic compared with a formula, and its page with a tiny encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_counted_arithmetic_of_mlm_and_bow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import pretraining_speed as speed

    size = speed.Size(layers=1, width=192, batch=2, length=20)
    counted = speed.count(["mlm", "bow"], size, speed.Clock(torch.device("cpu")))
    config = speed.PretrainingConfig(objective="mlm", max_length=size.length)
    offsets = speed.random_passages(speed.BATCHES, 4, size.length).offsets
    masked = sum(round(config.encoder_mlm_probability * int(offsets[row + 1] - offsets[row])) for row in range(2))
    width = size.width
    lengths = [int(offsets[row + 1] - offsets[row]) + 2 for row in range(2)]  # [CLS] and [SEP]; padding is not computed
    # A product forward and two backward, a multiplication and an addition each.
    layer = 6 * sum(lengths) * (4 + 4 + 4) * width**2 + 6 * 2 * sum(length**2 for length in lengths) * width
    head = 6 * masked * (width**2 + width * speed.VOCABULARY)
    assert counted["mlm"] == layer + head
    assert counted["bow"] - counted["mlm"] == 6 * size.batch * width * speed.VOCABULARY


def test_page_has_a_row_an_objective(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import pretraining_speed as speed

    page = tmp_path / "page.md"
    small = ["--layers", "1", "--width", "192", "--batch", "2", "--length", "16", "--rounds", "1", "--steps", "2"]
    arguments = [*small, "--this-size-only", "--objectives", "auto_encoding", "--page", str(page)]
    assert speed.main(arguments) == 0
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    assert [row[0] for row in rows] == ["| `mlm`", "| `auto_encoding`"]
    assert rows[0][2:6] == ["+0.0 % ± 0.0", "1.000", "+0.0 %", "100.0 %"]
    assert float(rows[1][3]) > 1
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert str(page) in capsys.readouterr().out
    with pytest.raises(SystemExit):
        speed.main(["--objectives", "mlmm", "--page", str(page)])
