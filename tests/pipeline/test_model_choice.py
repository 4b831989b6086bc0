"""`stillhouse new --model A,B,C`: of several base models, the best on the dev questions is taken, with its costs."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest
import torch
from beir_source import write_beir
from families import hugging_face_folder, saved, tokenizer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from torch.nn.functional import normalize

from stillhouse.cli import main
from stillhouse.core.errors import InputError
from stillhouse.models.model_table import COLUMNS
from stillhouse.pipeline import model_choice
from stillhouse.pipeline.recipes import load_recipe

TEXTS = list(product(["red", "green", "blue"], ["bird", "fish", "tree"], ["one", "two", "three"], ["sings", "swims"]))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """54 passages about animals and as many others, and a dev question about each of the former."""
    monkeypatch.chdir(tmp_path)
    texts = [f"the {' '.join(words)} in the tree" for words in TEXTS]
    texts += [f"ships carry {a} {b} of {c} {d}" for a, b, c, d in TEXTS]
    questions = [f"where does the {' '.join(words)}" for words in TEXTS]
    return write_beir(tmp_path / "corpus", texts, questions, dev=range(len(TEXTS)))


def static(folder: Path, vectors_VD: torch.Tensor) -> Path:
    words = StaticEmbedding(tokenizer().backend_tokenizer, embedding_weights=vectors_VD.numpy())
    return saved([words, Normalize()], folder)


@pytest.fixture
def good(source: Path, tmp_path: Path) -> Path:
    """A static embedding that has a dimension for each word, so that texts of the same words are near."""
    return static(tmp_path / "good", torch.eye(len(tokenizer())))


def test_the_best_of_several_models_is_taken(
    source: Path, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    noise_VD = torch.randn(len(tokenizer()), 3)
    static(tmp_path / "noise", noise_VD)
    hugging_face_folder("llama", tmp_path / "decoder")
    assert main(["new", "work", "--source", "corpus", "--model", "noise,good,decoder"]) == 0
    said = capsys.readouterr().out
    found = re.findall(r"(\w+): RR@10 ([\d.]+) alone, ([\d.]+) with BM25; (\d+) ms a query, ([\d.]+) MB of index", said)
    alone = {name: float(figure) for name, figure, *_ in found}
    assert alone.keys() == {"noise", "good", "decoder"} and max(alone, key=alone.__getitem__) == "good"
    assert alone["good"] == pytest.approx(by_hand(source, torch.eye(len(tokenizer()))), abs=5e-4)
    assert alone["noise"] == pytest.approx(by_hand(source, noise_VD), abs=5e-4)
    assert "the best is good" in said and "54 dev questions among 108 passages" in said
    assert load_recipe(Path("work/params.yaml"))["fetch_model"]["model"] == "../good"
    assert not list(tmp_path.glob(".stillhouse")), "the trials leave nothing"


def by_hand(source: Path, vectors_VD: torch.Tensor) -> float:
    """RR@10 of the cosines of the texts' mean word vectors."""
    ids = tokenizer().get_vocab()

    def means(name: str) -> torch.Tensor:
        texts = [json.loads(line)["text"] for line in (source / name).read_text().splitlines()]
        return torch.stack([vectors_VD[[ids[word] for word in text.split()]].mean(0) for text in texts])

    scores_QN = normalize(means("queries.jsonl")) @ normalize(means("corpus.jsonl")).T
    ranks_Q = (scores_QN > scores_QN.diagonal()[:, None]).sum(1) + 1
    return float(torch.where(ranks_Q <= 10, 1 / ranks_Q, 0.0).mean())


def test_without_dev_questions_the_published_figure_decides(
    source: Path, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    static(tmp_path / "other", torch.eye(len(tokenizer()))[:, :8].contiguous())
    static(tmp_path / "german", torch.eye(len(tokenizer()))[:, :8].contiguous())
    (source / "qrels" / "dev.tsv").unlink()
    (source / "queries.jsonl").unlink()
    rows = [
        "good,en,1 M,MIT,70,96,41.5,x",
        "other,many,1 M,MIT,8,96,52,x",
        "german,de,1 M,MIT,8,96,60,x",
        "far/away,en,,,,,70,",
    ]
    Path("own.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    assert main(["models", "--table", "own.csv"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["model", "*", "*", "*", "far/away"]
    assert main(["new", "work", "--source", "corpus", "--model", "own.csv"]) == 0
    assert "nothing was measured" in capsys.readouterr().out
    assert load_recipe(Path("work/params.yaml"))["fetch_model"]["model"] == "../other"


def test_a_model_that_takes_too_long_is_left_out(
    source: Path, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample of the passages holds the right answers, which are more than it draws."""
    monkeypatch.setattr(model_choice, "SECONDS", 0.0)
    monkeypatch.setattr(model_choice, "PASSAGES", 10)
    hugging_face_folder("llama", tmp_path / "larger")
    assert main(["new", "work", "--source", "corpus", "--model", "larger,good"]) == 0
    said = capsys.readouterr().out
    assert "skipped larger: it would take" in said and "the best is good" in said
    [(questions, passages)] = re.findall(r"(\d+) dev questions among (\d+) passages", said)
    assert int(questions) == 54 and 54 < int(passages) <= 64


def test_a_table_that_is_none_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = ",".join(COLUMNS)
    for text in ("", "name,size\na,1\n", f"{head}\na,en\n", f"{head}\na,en,1,MIT,8,8,high,x\n"):
        Path("own.csv").write_text(text)
        for words in (["models", "--table", "own.csv"], ["new", "work", "--source", "corpus", "--model", "own.csv"]):
            assert main(words) == InputError.exit_code
            assert "own.csv" in capsys.readouterr().err
    assert main(["models", "--table", "nowhere.csv"]) == InputError.exit_code
