"""Forecasting the time of a run: it counts queries as `ingest` makes them, and a run fits into the given hours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse import cli
from stillhouse.artifacts import read_manifest
from stillhouse.corpus.first_look import FirstLook, look_at
from stillhouse.errors import InputError
from stillhouse.workflow import first_run_times, run_forecast
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe
from stillhouse.workflow.run_forecast import fit_into, forecast, scale_of_look, with_settings

LABELLED = load_recipe(find_recipe("labelled"))
LARGE = FirstLook("beir", 3_000, (150,) * 100, {"train": 3000, "dev": 200, "test": 500}, True)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A computer without a GPU that reaches 10^11 operations per second in a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_run_times, "model_speed", lambda precision: 1e11)
    monkeypatch.setattr(run_forecast, "on_processor", lambda: True)


def source(folder: Path, train: int, dev: int = 0) -> Path:
    """Write 40 passages of two sentences and a judged question about each."""
    (folder / "qrels").mkdir(parents=True)
    text = "The {} bird sings early in the morning. In the evening bird number {} is as quiet as the others are."
    passages = [{"_id": f"p{i}", "title": f"Bird {i}", "text": text.format(i, i)} for i in range(40)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    questions = [{"_id": f"q{i}", "text": f"when does number {i} sing"} for i in range(40)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    ends = {"train": range(train), "dev": range(train, train + dev), "test": range(train + dev, 40)}
    for split, rows in ends.items():
        if rows:
            lines = "".join(f"q{row}\tp{row}\t1\n" for row in rows)
            (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


@pytest.mark.parametrize(
    ("train", "dev", "most", "splits"),
    [
        (30, 0, None, None),
        (26, 0, None, None),
        (1, 0, None, None),
        (20, 10, None, None),
        (20, 10, 8, None),
        (30, 5, 3, None),
        (30, 10, None, {"dev": "test"}),
    ],
)
def test_forecast_queries_equal_those_of_ingest(
    train: int,
    dev: int,
    most: int | None,
    splits: dict[str, str] | None,
    tmp_path: Path,
    run_step: Callable[..., dict[str, Path]],
) -> None:
    corpus = source(tmp_path / "corpus", train, dev)
    own = {"source": str(corpus), "max_train_queries": most, "max_dev_queries": most, "mixed_pairs": 1.0}
    own |= {"splits": splits}
    settings = configs(with_settings(LABELLED, {"ingest": own}), "recipe")
    made = run_step("ingest", {}, **own)["corpus"]
    look = look_at(str(corpus))
    scale = scale_of_look(settings, look, weights=1)
    assert look.whole and scale.passages == 40
    assert scale.queries == read_manifest(made).facts["queries"]


@pytest.mark.parametrize("share", [0.95, 0.8, 0.7])
def test_a_run_fits_into_its_hours_by_training_less(share: float) -> None:
    whole = forecast(LABELLED, LARGE)
    assert whole is not None
    own = fit_into(share * whole.total / 3600, LABELLED, LARGE)
    fitted = forecast(with_settings(LABELLED, own), LARGE)
    assert fitted is not None and 0.95 * share < fitted.total / whole.total < 1.05 * share
    assert own["retriever_1"]["max_steps"] < 100 and own["distilled"]["max_steps"] < 50
    others = whole.seconds.keys() - own.keys()
    assert {name: fitted.seconds[name] for name in others} == {name: whole.seconds[name] for name in others}


def test_a_training_of_few_steps_stays_whole_while_others_give_way() -> None:
    """With 160 train questions the distilled retriever trains for five steps, of which none can be spared."""
    look = FirstLook("beir", 300, (150,) * 100, {"train": 160, "dev": 50, "test": 100}, True)
    whole = forecast(LABELLED, look)
    assert whole is not None and whole.steps["distilled"] == 5
    own = fit_into(0.7 * whole.total / 3600, LABELLED, look)
    fitted = forecast(with_settings(LABELLED, own), look)
    assert fitted is not None and 0.95 * 0.7 < fitted.total / whole.total <= 0.7
    assert own["distilled"]["max_steps"] == 5


def test_ample_hours_change_nothing_and_too_few_are_refused() -> None:
    assert fit_into(100, LABELLED, LARGE) == {}
    with pytest.raises(InputError, match="however little it trains; give --hours") as refused:
        fit_into(0.02, LABELLED, LARGE)
    [hours] = re.findall(r"--hours ([0-9.]+)", str(refused.value))
    assert fit_into(float(hours), LABELLED, LARGE), "what it says is enough"
    with pytest.raises(InputError, match="--hours needs a source"):
        fit_into(1, LABELLED, None)


def test_new_writes_what_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = source(tmp_path / "corpus", 30)
    assert cli.main(["new", "long", "--source", str(corpus)]) == 0
    assert "the whole run takes about" in capsys.readouterr().out
    assert cli.main(["new", "short", "--source", str(corpus), "--hours", "0.001"]) == 2
    assert "give --hours" in capsys.readouterr().err and not Path("short").exists()
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        assert cli.main(["new", "short", "--source", str(corpus), "--hours", wrong]) == 2
        assert "must be a number above 0" in capsys.readouterr().err
    assert load_recipe(Path("long/params.yaml"))["retriever_1"]["max_steps"] == 100
