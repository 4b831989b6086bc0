"""`stillhouse new` inspects a source: it chooses a recipe that fits and a length that covers whole passages."""

from __future__ import annotations

from pathlib import Path

import pytest
from beir_source import write_beir

from stillhouse import cli
from stillhouse.corpus.sources.options import sample_folder
from stillhouse.pipeline import recipe_choice
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import load_recipe

pytestmark = pytest.mark.usefixtures("here")


def beir(folder: Path, words: int, splits: tuple[str, ...], passages: int = 40, train: int = 2) -> Path:
    """Write passages of `words` words, the last twenty times as long, and one question per split, but `train` in it.

    Every word of the first hundred passages is one token of BERT's vocabulary.
    """
    lengths = [words] * (passages - 1) + [20 * words]
    texts = [" ".join([str(i)] + ["word"] * (n - 1)) for i, n in enumerate(lengths)]
    names = {split: [f"q-{split}-{i}" for i in range(train if split == "train" else 1)] for split in splits}
    queries = {name: f"what is in {name}" for split in splits for name in names[split]}
    return write_beir(folder, texts, queries, **{split: [(name, "p1") for name in names[split]] for split in splits})


def made(source: str) -> dict[str, dict[str, object]]:
    assert cli.main(["new", "work", "--source", source]) == 0
    return load_recipe(Path("work/params.yaml"))


def test_a_run_in_its_own_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tea.md").write_text("# Tea\n\nTea is a drink.\n")
    words = ["run", "--recipe", "unlabelled", "--source", str(tmp_path), "--folder", str(tmp_path / "run")]
    assert cli.main(words) == 2 and "is inside the source" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "length", "split"), [(10, 64, None), (100, 128, None), (400, 128, 128)])
def test_labelled_questions_get_their_recipe_and_whole_passages(
    here: Path, words: int, length: int, split: int | None
) -> None:
    recipe = made(str(beir(here / "corpus", words, ("train", "test"))))
    assert recipe["teacher"]["kind"] == "best"
    assert recipe["fetch_model"]["passage_length"] == length, "one long passage of forty sets no length"
    assert recipe["validate"]["max_passage_words"] is None
    assert recipe["ingest"].get("split_tokens") == split, "all are longer than the base model reads"
    [ingest] = [step for step in graph_of(recipe) if step.name == "ingest"]
    assert ingest.inputs == ({"tokenizer": "fetch_model/encoder"} if split else {})


@pytest.mark.parametrize(("here_is_one", "english", "written"), [(1, 1, True), (1, 0, False), (0, 1, False)])
def test_a_language_model_that_is_here_writes_english_questions(
    here: Path, monkeypatch: pytest.MonkeyPatch, here_is_one: int, english: int, written: bool
) -> None:
    monkeypatch.setattr(recipe_choice, "writes", lambda: bool(here_is_one))
    german = "Die Gezeiten entstehen durch die Anziehung des Mondes und der Sonne auf das Wasser der Meere.\n\n"
    (here / "texte").mkdir()
    for number in range(20):
        (here / "texte" / f"{number}.md").write_text(f"# Gezeiten {number}\n\n" + german * 3)
    recipe = made(str(sample_folder() / "articles") if english else "texte")
    [ingest] = [step for step in graph_of(recipe) if step.name == "ingest"]
    assert ("generated" in ingest.inputs) == written and (recipe["ingest"]["queries"] == "pairs") == (not written)


@pytest.mark.parametrize("splits", [("test",), ("dev", "test")])
def test_without_training_questions_the_corpus_makes_them(
    splits: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = made(str(beir(here / "corpus", 100, splits)))
    assert recipe["ingest"]["queries"] == "pairs" and recipe["fetch_model"]["passage_length"] == 128
    assert ("stillhouse label " in capsys.readouterr().out) == ("dev" not in splits)


def test_the_sample_gets_the_recipe_of_labelled_questions(here: Path) -> None:
    assert made("sample")["teacher"]["kind"] == "best"


@pytest.mark.parametrize(("train", "share"), [(5, 0.5), (60, 0.5), (99, 0.31), (200, 0.15), (299, 0.11), (300, None)])
def test_thirty_or_half_of_few_training_questions_choose_among_models(
    train: int, share: float | None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = made(str(beir(here / "corpus", 20, ("train", "test"), train=train)))
    said = capsys.readouterr().out
    assert recipe["graph"] == "labelled"
    assert recipe["ingest"].get("dev_fraction") == share and f"{train} training, 1 test questions" in said
    assert ("of the training questions become dev questions" in said) == (share is not None)
    assert (f"training on {train} questions gains little" in said) == (train < 100)


def test_dev_questions_become_test_questions_if_there_are_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = made(str(beir(here / "corpus", 20, ("train", "dev"), train=300)))
    assert recipe["ingest"]["splits"] == {"dev": "test"} and "dev_fraction" not in recipe["ingest"]
    assert "there are no test questions: the dev questions become test questions" in capsys.readouterr().out


@pytest.mark.parametrize("splits", [("train", "test"), ("test",)])
def test_new_says_why_there_is_no_pretraining(
    splits: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = made(str(beir(here / "corpus", 20, splits)))
    assert "no pre-training: the base model is already a retriever" in capsys.readouterr().out
    assert "pretrain" not in {step.kind for step in graph_of(recipe)}
    assert cli.main(["new", "micro", "--source", "corpus", "--recipe", "micro", "--hours", "9"]) == 0
    assert "no pre-training" not in capsys.readouterr().out


TRAINED = ("retriever_1", "retriever_2", "distilled")


@pytest.mark.parametrize(("gibibytes", "parts"), [(64, set()), (24, {"distilled"}), (8, set(TRAINED))])
def test_trainings_that_exceed_half_the_memory_compute_batches_in_parts(
    gibibytes: int, parts: set[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: 32 queries with 4 passages of 256 tokens at 420 KiB take 13.1 GiB, with 2 passages 6.6 GiB."""
    monkeypatch.setattr("stillhouse.pipeline.new_workspace.own_memory", lambda: gibibytes * 2**30)
    recipe = made(str(beir(here / "corpus", 240, ("train", "test"))))
    found = {name for name in TRAINED if recipe[name].get("gradient_cache")}
    assert found == parts and all(recipe[name]["mini_batch_size"] == 32 for name in found)
    assert ("a batch in parts" in capsys.readouterr().out) == bool(parts)
