"""Scoring pairs: a kill changes no bit, a text that is too long is cut, a score that is not a number is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.core.config import build
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models import pair_scores
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import ScoreLog, score_pairs
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.training.batches import epoch_batches, times_seen
from stillhouse.training.group_training import open_samplers
from stillhouse.training.negatives import Negatives
from stillhouse.training.teacher import Teacher

Run = Callable[..., dict[str, Path]]
CONFIG = InferenceConfig(precision="fp32", batch_tokens=128)
QUESTIONS = [f"question {number}" for number in range(10)]


@pytest.fixture(scope="module")
def reranker(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    model = CrossEncoder.start(tiny_model, 32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.ndim > 1 else 1)
    folder = tmp_path_factory.mktemp("scoring") / "reranker"
    model.save(folder)
    return folder


class Killed(Exception):
    """Stands in for a kill."""


def counted(monkeypatch: pytest.MonkeyPatch, stop_at: int = 0) -> list[int]:
    """Counts the batches that are computed and stops before batch `stop_at`."""
    batches: list[int] = []
    real = CrossEncoder.forward

    def forward(self: CrossEncoder, *batch: torch.Tensor) -> torch.Tensor:
        if stop_at and len(batches) + 1 >= stop_at:
            raise Killed
        batches.append(len(batch[0]))
        return real(self, *batch)

    monkeypatch.setattr(CrossEncoder, "forward", forward)
    return batches


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_a_killed_scoring_resumes_to_the_same_bytes(
    run_step: Run, small_corpus: Path, reranker: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(pair_scores, "PAIRS_AT_ONCE", 40)
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)["negatives"]
    inputs = {"corpus": small_corpus, "negatives": negatives, "reranker": reranker}
    settings = {"precision": "fp32", "batch_tokens": 128 * threads}
    with monkeypatch.context() as patch:
        all_batches = counted(patch)
        whole = run_step("score-pairs", inputs, "whole", **settings)["teacher"]
    assert sum(all_batches) == 18 * 7 and len(all_batches) > 20
    done = 0
    for stop_at in (3, 8, 1, 6):
        with monkeypatch.context() as patch:
            batches = counted(patch, stop_at)
            with pytest.raises(Killed):
                run_step("score-pairs", inputs, "resumed", **settings)
        if threads == 1:  # with more threads, batches under way are computed again
            assert batches == all_batches[done : done + stop_at - 1]
            done += stop_at - 1
    with monkeypatch.context() as patch:
        batches = counted(patch)
        resumed = run_step("score-pairs", inputs, "resumed", **settings)["teacher"]
    assert batches == all_batches[done:] if threads == 1 else sum(batches) < sum(all_batches)
    assert digest_files(resumed) == digest_files(whole)
    assert (resumed / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()


@pytest.mark.parametrize("shards", [3])
def test_shards_of_pairs_make_the_same_teacher_to_the_last_bit(
    run_step: Run,
    small_corpus: Path,
    tiny_model: Path,
    reranker: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shards: int,
) -> None:
    """102 pairs make three chunks, so some of seven shards have none. The student is scored by `score-pairs` alone."""
    monkeypatch.setattr(pair_scores, "PAIRS_AT_ONCE", 40)
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)["negatives"]
    student = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    index = run_step("index", {"corpus": small_corpus, "retriever": student}, precision="fp32")["index"]
    alone = {"corpus": small_corpus, "negatives": negatives, "reranker": reranker}
    inputs = alone | {"retriever": student, "index": index}
    settings = {"precision": "fp32", "batch_tokens": 128, "depth": 4}
    whole = run_step("score-pairs", inputs, "whole", **settings)["teacher"]
    for shard in range(1, shards + 1):
        run_step("score-shard", alone, f"shares/{shard}", shard=shard, shards=shards, **settings)
    scored = [read_manifest(folder).facts["pairs"] for folder in (tmp_path / "shares").glob("*/scores")]
    assert sum(scored) == 12 * 5 + 6 * 7 and len(scored) == shards
    shares = tmp_path / "together"
    shares.mkdir()
    for shard in range(1, shards + 1):
        (shares / f"shard-{shard}").symlink_to(tmp_path / "shares" / str(shard) / "scores")
    step = find_step("score-pairs")
    config: Any = build(step.config, settings, "test")
    with monkeypatch.context() as patch:
        batches = counted(patch)
        execute(step, config, inputs, {"teacher": tmp_path / "divided"}, shares=shares)
    assert not batches, "no pair is scored twice"
    assert digest_files(tmp_path / "divided") == digest_files(whole)
    if shards > 1:
        (shares / "shard-2").unlink()
        with pytest.raises(InputError, match="but there are 102 pairs to score"):
            execute(step, config, inputs, {"teacher": tmp_path / "lacking"}, shares=shares)


def test_a_log_that_was_cut_anywhere_gives_the_whole_scores(tmp_path: Path) -> None:
    query_P, row_P = np.arange(10), np.arange(10)
    known = {4: 0.5, 1: -1.0, 0: 2.0, 9: 3.0}
    with ScoreLog(tmp_path, QUESTIONS, query_P, row_P) as log:
        log.add(np.array(list(known)), np.array(list(known.values()), dtype=np.float32))
    [file] = tmp_path.iterdir()
    data = file.read_bytes()
    for at in range(len(data) + 1):
        file.write_bytes(data[:at])
        with ScoreLog(tmp_path, QUESTIONS, query_P, row_P) as log:
            found = dict(zip(np.flatnonzero(log.done_P).tolist(), log.scores_P[log.done_P].tolist()))
        assert found == dict(list(known.items())[: at // 8]) and file.stat().st_size == at // 8 * 8


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_training_reads_exactly_the_pairs_that_were_scored(
    run_step: Run, small_corpus: Path, reranker: Path, tmp_path: Path, split: str
) -> None:
    """A query draws 2 negatives in each of 3 epochs, the 6 that are scored of 8. Dev queries only draw once."""
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=9)["negatives"]
    inputs = {"corpus": small_corpus, "negatives": negatives, "reranker": reranker}
    scored = run_step("score-pairs", inputs, depth=8, negatives_scored=6, dev_negatives_scored=2, seed=5)["teacher"]
    teacher = Teacher.read(scored)
    context = Context(tmp_path, "cpu", quiet=True)
    made = Negatives.read(negatives)
    sampler = open_samplers(Corpus.open(small_corpus), made, 2, 8, 5, context, teacher)[split]
    read = []
    batch, times = epoch_batches(len(sampler), 5, seed=5), times_seen(len(sampler), 5)
    steps = -(-3 * len(sampler) // 5)
    for step in range(steps):
        # The last batch may reach into a fourth epoch, which is left out here.
        seen = times(step) < (3 if split == "train" else 1)
        groups = sampler.draw(batch(step)[seen], times(step)[seen])
        read += zip(np.repeat(sampler.query_numbers_Q[groups.examples_B], 2), groups.columns_BK[:, 1:].ravel())
    assert len(set(read)) == len(read)
    known = zip(*np.nonzero(~np.isnan(teacher.negative_scores_QD)))
    assert set(read) == {(q, d) for q, d in known if made.queries["split"][q] == split}
    # They include what training without a teacher draws in the first epoch.
    plain = open_samplers(Corpus.open(small_corpus), made, 2, 8, 5, context)[split]
    groups = plain.draw(np.arange(len(plain)), np.zeros(len(plain), np.int64))
    assert {(q, d) for q, row in zip(plain.query_numbers_Q, groups.columns_BK[:, 1:]) for d in row} <= set(read)


def test_scores_are_those_of_sentence_transformers_whatever_the_batch(
    small_corpus: Path, reranker: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder as Other

    queries = np.array(["where does the red bird sing", "", "what " * 10_000], dtype=object)
    passages = np.array(["the red bird sings", "", "a tree grows " * 3000], dtype=object)
    query_P, row_P = (grid.ravel() for grid in np.meshgrid(np.arange(3), np.arange(3)))
    model = CrossEncoder.load(reranker)
    scores = score_pairs(model, queries, passages, query_P, row_P, Context(tmp_path, "cpu", True), "scoring", CONFIG)
    # A query of 10,000 words is cut to half of the pair's 32 tokens, and the passage to what the query and 3 special
    # tokens leave. A word is a token here. sentence-transformers would shorten the longer of the two instead.
    cut = [query.split()[:16] for query in queries]
    pairs = [(cut[query], passages[row].split()[: 29 - len(cut[query])]) for query, row in zip(query_P, row_P)]
    other = Other(str(reranker), device="cpu")
    expected = other.predict([(" ".join(query), " ".join(passage)) for query, passage in pairs])
    assert np.allclose(scores, expected, atol=1e-5) and np.isfinite(scores).all()
    lengths = model.pairs([queries[2]], [passages[2]]).ids.lengths()
    assert lengths.tolist() == [32]


def test_a_nan_score_is_refused(reranker: Path, tmp_path: Path) -> None:
    model = CrossEncoder.load(reranker)
    with torch.no_grad():
        next(model.parameters())[5] = torch.nan
    pairs = (np.array(["red red", "blue"], dtype=object), np.array(["fish"], dtype=object))
    context = Context(tmp_path, "cpu", quiet=True)
    with pytest.raises(InputError, match=r"query 'red red' with passage 'fish' is not finite.*fp32"):
        score_pairs(model, *pairs, np.array([1, 0]), np.array([0, 0]), context, "scoring", CONFIG)
