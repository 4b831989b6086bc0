"""A newer retriever may use an older index if dev queries show that it is as good; any other pair is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder
from stillhouse.pipeline.steps.adopt_index import adopted_index
from stillhouse.search.searcher import Searcher

Run = Callable[..., dict[str, Path]]


@pytest.fixture
def upgraded(run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path) -> dict[str, Path]:
    """Return an index of a retriever, and a newer retriever with negated vectors."""
    import torch

    corpus = {"corpus": small_corpus}
    old = run_step("index", corpus | {"retriever": retriever}, "old", precision="fp32")["index"]
    encoder = BiEncoder.load(retriever)
    with torch.no_grad():
        last = encoder.tower("passage").encoder.encoder.layer[-1].output.LayerNorm
        last.weight.neg_(), last.bias.neg_()
    turned = tmp_path / "turned"
    turned.mkdir()
    encoder.save(turned)
    return corpus | {"retriever": turned, "old_index": old, "old_retriever": retriever}


def test_a_retriever_that_finds_less_in_the_old_index_is_refused(run_step: Run, upgraded: dict[str, Path]) -> None:
    """In the old index every cosine has the wrong sign."""
    with pytest.raises(InputError, match=r"less than least_ratio = 0.99; run `stillhouse index`"):
        run_step("adopt-index", upgraded)


def test_an_adopted_index_is_searched(
    run_step: Run, upgraded: dict[str, Path], retriever: Path, small_corpus: Path, tmp_path: Path
) -> None:
    """A retriever with the same vectors but another digest is refused until its index has been measured."""
    same = tmp_path / "same"
    same.mkdir()
    BiEncoder.load(retriever, towers="separate").save(same)
    where = Context(tmp_path, "cpu", quiet=True)
    with pytest.raises(InputError, match="was made from another retriever"):
        Searcher(small_corpus, same, upgraded["old_index"], where)
    adopted = run_step("adopt-index", upgraded | {"retriever": same})["index"]
    facts = read_manifest(adopted).facts
    assert facts["adopted"]["ratio"] == pytest.approx(1) and facts["kind"] == "flat"
    for path in adopted.iterdir():
        assert path.name == MANIFEST or path.read_bytes() == (upgraded["old_index"] / path.name).read_bytes()
    one, two = (
        Searcher(small_corpus, *pair, where).search("where does the red bird sing", 5)
        for pair in ((same, adopted), (retriever, upgraded["old_index"]))
    )
    assert [(hit.passage_id, round(hit.score, 5)) for hit in one] == [(h.passage_id, round(h.score, 5)) for h in two]
    run_step("retrieve", {"corpus": small_corpus, "retriever": same, "index": adopted}, depth=5)


def test_a_chosen_index_says_that_it_was_adopted(
    run_step: Run, retriever: Path, small_corpus: Path, tmp_path: Path
) -> None:
    """`select-best` copies the winner's index, once more if its copy competes again."""
    corpus = {"corpus": small_corpus}
    old = run_step("index", corpus | {"retriever": retriever}, "old", precision="fp32")["index"]
    (tmp_path / "same").mkdir()
    BiEncoder.load(retriever, towers="separate").save(tmp_path / "same")
    inputs = corpus | {"retriever": tmp_path / "same", "old_index": old, "old_retriever": retriever}
    index = run_step("adopt-index", inputs)["index"]
    digests = {name: read_manifest(inputs[name]).digest for name in ("old_index", "old_retriever")}
    pair = {"retriever": tmp_path / "same", "index": index}
    bm25 = run_step("bm25", corpus, depth=24, negatives_depth=4)["bm25"]
    for name in ("best", "again"):
        found = {f"candidates/{name}": pair["retriever"], f"indexes/{name}": pair["index"], "bm25": bm25}
        pair = run_step("select-best", corpus | found, name, precision="fp32", fusion="never")
        assert read_manifest(pair["index"]).facts["adopted"] == read_manifest(index).facts["adopted"] | digests
        assert adopted_index(read_manifest(pair["index"])) == adopted_index(read_manifest(index))
    found = {"candidates/a": retriever, "indexes/a": old, "bm25": bm25}
    best = run_step("select-best", corpus | found, "not adopted", precision="fp32", fusion="never")["index"]
    assert "adopted" not in read_manifest(best).facts and adopted_index(read_manifest(best)) is None


def test_indexes_of_other_models_are_refused(run_step: Run, upgraded: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="--old-index was made by another model than --old-retriever"):
        run_step("adopt-index", upgraded | {"old_retriever": upgraded["retriever"]})
