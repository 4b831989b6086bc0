"""The serving benchmark, made to run in seconds: real processes and plausible figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.long
def test_a_service_and_faiss_are_measured_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import serving
    import sized_releases

    monkeypatch.setattr(sized_releases, "MODEL", str(tiny_model))
    monkeypatch.setattr(sized_releases, "LENGTH", 24)
    monkeypatch.setattr(sized_releases, "ENCODED", 40)
    page = tmp_path / "page" / "serving.md"
    page.parent.mkdir()
    words = ["--folder", str(tmp_path / "build"), "--passages", "300", "--kinds", "flat", "sq8", "--clients", "1", "2"]
    words += ["--seconds", "0.2", "--systems", "stillhouse", "faiss", "--page", str(page)]
    assert serving.main(words) == 0
    kept = json.loads(page.with_suffix(".measured.json").read_text(encoding="utf-8"))["cases"]
    systems = [f"{system}/{kind}/300" for system in ("stillhouse", "faiss") for kind in ("flat", "sq8")]
    assert set(kept) == {*systems, "stillhouse/embed"}
    for name in ("stillhouse/flat/300", "stillhouse/sq8/300"):
        case = kept[name]
        assert 0 < case["ready"] < case["first_answer"]
        for clients in ("clients 1", "clients 2"):
            assert case[clients]["failures"] == 0 and case[clients]["requests"] > 1
            assert 0 < case[clients]["p50"] <= case[clients]["p99"]
        assert case["memory"]["anonymous"] < case["memory"]["rss"]
    assert kept["stillhouse/embed"]["least_cosine"] > 0.9999
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| sq8 | Stillhouse |")]
    assert len(lines) == 2
    before = page.read_text(encoding="utf-8")
    monkeypatch.setattr(serving, "measured", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(serving, "embedding", lambda *_: pytest.fail("measured again"))
    assert serving.main(words) == 0
    assert page.read_text(encoding="utf-8") == before


def test_quantiles_are_values_that_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from serving_load import quantile

    values = [float(number) for number in range(1, 201)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([3.0], 0.99)) == (100.0, 198.0, 3.0)
