"""Small models and corpora that the tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from word_pieces import SPECIAL, TINY, WORDS, save_tokenizer

# A deadline would measure how busy the computer is. Every run draws the same examples, so that a failure comes from the
# change under test. `pytest --hypothesis-profile search` draws new ones.
settings.register_profile("search", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["STILLHOUSE_QUIET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with slow tests first, so that no process is left with a long file at the end.

    The tests of survival wait for one run, which the first of them makes: the others come later.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    waiting = {path for path in slow if path.parent.name == "survival" and path.name != "test_killed_steps.py"}
    items.sort(key=lambda item: (item.path not in slow, item.path in waiting, item.path.name != "test_killed_steps.py"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spares the garbage collector what is imported and collected, which it would look through again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 2 layers and width 32 with random weights and a vocabulary of WORDS, as a bare encoder folder."""
    import torch
    from transformers import BertConfig, BertModel

    vocabulary = [*SPECIAL, *WORDS, "##s", "##ing"]
    folder = tmp_path_factory.mktemp("tiny") / "model"
    save_tokenizer(folder, vocabulary)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), num_hidden_layers=2, intermediate_size=64, **TINY)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_modernbert(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ModernBERT of width 32 with random weights and the vocabulary of `tiny_model`, as a bare encoder folder.

    The first and last of its 4 layers attend to the whole text, the others to 3 tokens on either side.
    """
    import torch
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel

    folder = tmp_path_factory.mktemp("modern") / "model"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.model_max_length = 8192
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
    config = ModernBertConfig(vocab_size=len(tokenizer), local_attention=6, **sizes, **special)
    ModernBertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus folder of 24 passages about coloured animals, with train, dev and test queries."""
    from itertools import product

    from stillhouse.core.artifacts import whole_folder, write_manifest
    from stillhouse.corpus.store import write_tables

    kinds = list(product(["red", "green", "blue"], ["bird", "fish", "tree"], ["one", "two", "three"]))[:24]
    passages = {
        "passage_id": [f"p{n}" for n in range(24)],
        "title": [f"{colour} {thing}" for colour, thing, _ in kinds],
        "text": [f"the {colour} {thing} {number} sings and grows in the tree" for colour, thing, number in kinds],
        "article_id": [f"a{n // 3}" for n in range(24)],
        "section": [""] * 24,
        "position": [n % 3 for n in range(24)],
    }
    splits = ["train"] * 12 + ["dev"] * 6 + ["test"] * 6
    queries = {
        "query_id": [f"q{n}" for n in range(24)],
        "text": [f"where does the {colour} {thing} {number} sing" for colour, thing, number in kinds],
        "split": splits,
    }
    qrels = {"query_id": queries["query_id"], "passage_id": passages["passage_id"], "relevance": [1] * 24}
    folder = tmp_path_factory.mktemp("small") / "corpus"
    with whole_folder(folder) as staging:
        write_tables(staging, {"passages": passages, "queries": queries, "qrels": qrels | {"split": splits}})
        write_manifest(staging, "ingest", {}, {}, {"passages": 24})
    return folder


@pytest.fixture(scope="session")
def runs_of_steps() -> Callable[[Path], Callable[..., dict[str, Path]]]:
    """Returns a function that makes a `run_step` writing below a given folder, for fixtures that outlive a test."""
    from stillhouse.core.config import build
    from stillhouse.pipeline.steps.execute import execute
    from stillhouse.pipeline.steps.registry import find_step

    def below(root: Path) -> Callable[..., dict[str, Path]]:
        def run(name: str, inputs: dict[str, Path], into: str = "", **settings: object) -> dict[str, Path]:
            step = find_step(name)
            outputs = {port.name: root / (into or name) / port.name for port in step.outputs}
            execute(step, build(step.config, settings, name), inputs, outputs)
            return outputs

        return run

    return below


@pytest.fixture
def run_step(
    tmp_path: Path, runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]]
) -> Callable[..., dict[str, Path]]:
    """Runs a step by name: `run_step("mine", {"corpus": ...}, depth=3) -> {output: folder}`."""
    return runs_of_steps(tmp_path)


@pytest.fixture
def last_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the last parameters of each training: on a corpus as small as these, the first ones may be the best."""
    monkeypatch.setattr("stillhouse.training.loop.best_row", lambda rows, metric: rows[-1])


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of threads that torch computes with."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def work_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for one work folder per test, all in one parent: `mktemp` would list all earlier folders each time.

    Fixtures that outlive a test share the first one.
    """
    folder = tmp_path_factory.mktemp("work")
    os.environ["STILLHOUSE_WORK"] = str(folder / "shared")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_work_folder(work_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the work folders of tests out of the tree."""
    work = next(work_folders)
    work.mkdir()
    monkeypatch.setenv("STILLHOUSE_WORK", str(work))


@pytest.fixture
def paragraphs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every paragraph of a file is a passage, to see how each is read; `test_joined_paragraphs.py` has them joined."""
    monkeypatch.setattr("stillhouse.corpus.sources.article.JOINED", 0)
