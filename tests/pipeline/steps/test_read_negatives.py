"""Negatives from other files: every format gives the same lists, relevant passages are removed, errors are reported."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.errors import InputError
from stillhouse.training.negatives import Negatives

Lists = dict[str, list[str]]
DEPTH = 7


@pytest.fixture
def lists() -> Lists:
    """Return all passages of the small corpus for each train and dev query, in a random order."""
    draw = random.Random(3)
    names = [f"p{number}" for number in range(24)]
    return {f"q{number}": draw.sample(names, len(names)) for number in range(18)}


def as_run(lists: Lists) -> str:
    lines = [(q, p, r) for q, own in lists.items() for r, p in enumerate(own, 1)]
    random.Random(5).shuffle(lines)
    return "".join(f"{q} Q0 {p}\t{r}  {100 - r} theirs\n" for q, p, r in lines)


def as_triples(lists: Lists) -> str:
    return "".join(f"{q}\t{q.replace('q', 'p')}\t{p}\n" for q, own in lists.items() for p in own)


def as_systems(lists: Lists) -> str:
    """Return lists of two systems, each with every other passage. Taken in turn, they give the original list."""
    rows = [{"qid": q, "pos": [], "neg": {"bm25": own[::2], "dense": own[1::2]}} for q, own in lists.items()]
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_scored(lists: Lists) -> str:
    rows = [{"query_id": q, "negatives": {"doc_id": own, "score": [0.5] * len(own)}} for q, own in lists.items()]
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMATS: dict[str, tuple[str, Callable[[Lists], str]]] = {
    "a TREC run": ("run.trec", as_run),
    "triples": ("triples.tsv", as_triples),
    "systems in turn": ("hard-negatives.jsonl", as_systems),
    "scored lists": ("train.jsonl", as_scored),
    "triples, packed": ("triples.tsv.gz", as_triples),
}


def expected(lists: Lists) -> list[list[int]]:
    """Return the lists without the relevant passage. In the small corpus, passage n is relevant to query n."""
    return [[int(p[1:]) for p in own if p[1:] != q[1:]][:DEPTH] for q, own in lists.items()]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_lists_without_right_answers(
    name: str, lists: Lists, small_corpus: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    file, text = tmp_path / FORMATS[name][0], FORMATS[name][1](lists)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    found = run_step("read-negatives", {"corpus": small_corpus}, file=str(file), negatives_depth=DEPTH)["negatives"]
    assert np.asarray(Negatives.read(found).rows_QD).tolist() == expected(lists)


def test_dpr_names_its_questions_as_ingest_does(
    run_step: Callable[..., dict[str, Path]], tmp_path: Path, tiny_model: Path
) -> None:
    """A training can then use the negatives of these questions."""
    source = tmp_path / "nq"
    source.mkdir()
    passages = [f'{n}\t"the {n} birds sing"\tBird {n}' for n in range(1, 13)]
    (source / "psgs_w100.tsv").write_text("\n".join(["id\ttext\ttitle", *passages]) + "\n")
    questions = [
        {
            "question": f"how many birds sing in {n}",
            "answers": [str(n)],
            "positive_ctxs": [{"passage_id": str(n)}],
            "hard_negative_ctxs": [{"psg_id": f"wiki:{n % 12 + 1}"}, {"psg_id": str((n + 4) % 12 + 1)}],
        }
        for n in range(1, 11)
    ]
    (source / "biencoder-nq-train.json").write_text(json.dumps(questions))
    corpus = run_step("ingest", {}, source=str(source), format="dpr", queries="source", dev_fraction=0.3)["corpus"]
    file = source / "biencoder-nq-train.json"
    found = run_step("read-negatives", {"corpus": corpus}, file=str(file))["negatives"]
    negatives = Negatives.read(found)
    for query, own in zip(negatives.queries["query_id"], np.asarray(negatives.rows_QD).tolist()):
        n = int(query.rsplit("-", 1)[1]) + 1
        assert [row + 1 for row in own if row >= 0] == [n % 12 + 1, (n + 4) % 12 + 1]
    trained = {"max_steps": 1, "batch_size": 2, "negatives_per_query": 1, "negatives_depth": 2}
    inputs = {"corpus": corpus, "encoder": tiny_model, "negatives": found}
    assert (run_step("train-retriever", inputs, **trained)["retriever"] / "model.safetensors").is_file()


WRONG: dict[str, tuple[str, str]] = {
    "of another corpus": ("q1\tx\ty\n", "names no passage"),
    "of other queries": ("a\tp1\tp2\n", "names no passage"),
    "prose": ("It was a dark and stormy night, wasn't it.\n", "is not a list of negatives"),
    "empty": ("", "is not a list of negatives"),
    "a short line": ("q1\tp1\tp2\nq1\tp1\n", "negatives:2 is not `query, positive, negative`"),
    "a list without negatives": ('{"query_id": "q1"}\n', "lacks `query_id` or `negatives`"),
    "negatives that are no list": ('{"qid": "q1", "neg": "p2"}\n', "its negatives are not a list"),
    "ids that are none": ('{"qid": "q1", "neg": [[1]]}\n', "is not an id"),
    "JSON cut off": ('{"qid": "q1", "neg": ["p2"]}\n{"qid": "q2", "n', "cannot be read"),
    "DPR without hard negatives": ('[{"question": "q"}]', "no `hard_negative_ctxs`"),
    "DPR with an id that is none": (
        '[{"question": "q", "hard_negative_ctxs": [{"passage_id": null, "text": "t"}]}]',
        "question 1 .*: None is not an id",
    ),
    "DPR cut off": ('[{"question": "q", "hard_negative_ctxs": []},', "is damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_file_is_reported_in_a_sentence(
    name: str, small_corpus: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    content, said = WRONG[name]
    (tmp_path / "negatives").write_text(content)
    with pytest.raises(InputError, match=said):
        run_step("read-negatives", {"corpus": small_corpus}, file=str(tmp_path / "negatives"))
