"""The loss of a step: parts, gradient caching and Matryoshka widths do not change gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from step_gradients import assert_same, gradients_of
from torch import Tensor

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts, write_tables
from stillhouse.models.encoder import BiEncoder
from stillhouse.training.groups import GroupSampler
from stillhouse.training.losses import LossBatch, contrastive_loss, distillation_loss
from stillhouse.training.negatives import Negatives
from stillhouse.training.retriever_training import RetrieverLoss, fit_retriever
from stillhouse.training.settings import RetrieverConfig
from stillhouse.training.teacher import Teacher, TeacherScores

CPU = torch.device("cpu")
SETTINGS: Mapping[str, Any] = {"temperature": 0.1, "alpha": 0.3, "precision": "fp32", "seed": 3}
EXAMPLES = np.array([0, 4, 2, 1, 5])
PARTS = {"mini_batch_size": 2}
CACHED = {"mini_batch_size": 2, "gradient_cache": True}
STEP = 7

CASES: Mapping[str, Mapping[str, Any]] = {
    "eq. 3": {},
    "the authors' form": {"contrastive": "simlm_code"},
    "plain": {"contrastive": "plain"},
    "teacher": {"teacher": True},
    "teacher, dot product": {"teacher": True, "similarity": "dot", "temperature": 2.0},
    "teacher, the authors' form, separate towers": {"teacher": True, "contrastive": "simlm_code", "towers": "separate"},
    "widths": {"matryoshka_dims": [4, 16]},
    "widths, teacher, separate towers": {"matryoshka_dims": [4, 16], "teacher": True, "towers": "separate"},
    "widths, dot product": {"matryoshka_dims": [8], "similarity": "dot", "temperature": 2.0},
    "one query": {"examples": EXAMPLES[:1], "teacher": True},
}
"""Keys that are not settings of the loss: `teacher`, `towers`, `similarity`, `examples`."""


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose queries share answers, its negatives, and an encoder."""
    folder = tmp_path_factory.mktemp("shared")
    words = [f"{colour} {thing}" for colour in ("red", "green", "blue") for thing in ("bird", "fish", "tree")]
    names = [f"{number}" for number in range(9)]
    passages = {
        "passage_id": names,
        "title": [""] * 9,
        "text": [f"the {word} sings" + " and swims in the tree" * (n % 4) for n, word in enumerate(words)],
        "article_id": names,
        "section": [""] * 9,
        "position": [0] * 9,
    }
    splits = ["train"] * 6 + ["dev"] * 3
    queries = {"query_id": names, "text": [f"where does the {word} grow" for word in words], "split": splits}
    pairs = [(n, n) for n in range(9)] + [(0, 4), (2, 1), (5, 1)]
    qrels = {
        "query_id": [names[query] for query, _ in pairs],
        "passage_id": [names[passage] for _, passage in pairs],
        "relevance": [1] * len(pairs),
        "split": [splits[query] for query, _ in pairs],
    }
    with whole_folder(folder / "corpus") as staging:
        write_tables(staging, {"passages": passages, "queries": queries, "qrels": qrels})
        write_manifest(staging, "ingest", {}, {}, {"passages": 9})
    right = set(pairs)
    rows = [[row for row in range(9) if (query, row) not in right][: 6 - query % 3] for query in range(9)]
    rows_QD = np.array([row + [-1] * (6 - len(row)) for row in rows], dtype=np.int32)
    (folder / "negatives").mkdir()
    Negatives(pd.DataFrame({"query_id": names, "split": splits}), rows_QD).write(folder / "negatives")
    write_manifest(folder / "negatives", "mine", {}, {}, {})
    (folder / "encoder").mkdir()
    BiEncoder.load(tiny_model, pooling="mean", query_length=16, passage_length=24).save(folder / "encoder")
    return folder


def open_loss(
    folder: Path, case: Mapping[str, Any], device: torch.device = CPU, **more: Any
) -> tuple[RetrieverLoss, BiEncoder]:
    settings = {**SETTINGS, **case, **more}
    teacher, towers, cosine = (settings.pop(name, None) for name in ("teacher", "towers", "similarity"))
    settings.pop("examples", None)
    corpus, negatives = Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives")
    torch.manual_seed(5)
    changes = {"towers": towers} if towers else {}
    encoder = BiEncoder.load(folder / "encoder", normalize=cosine != "dot", **changes)
    if towers:  # equal towers would have the same gradient
        for values in encoder.tower("query").parameters():
            values.data += 0.02 * torch.randn(values.shape)
    encoder.to(device)
    sampler = GroupSampler(corpus, negatives, "train", 3, 6, 3)
    texts = np.array(passage_texts(corpus), dtype=object)
    teaching = TeacherScores(teacher_of(corpus, negatives), sampler) if teacher else None
    loss = RetrieverLoss(encoder, texts, sampler, teaching, RetrieverConfig(**settings), device)
    return loss, encoder.train()


def teacher_of(corpus: Corpus, negatives: Negatives) -> Teacher:
    random = np.random.default_rng(0)
    offsets, positives = corpus.positives(negatives.queries["query_id"])
    of_query = np.repeat(negatives.queries["query_id"].to_numpy(), np.diff(offsets))
    scores = random.normal(size=len(positives)).astype(np.float32)
    negative_scores = random.normal(size=negatives.rows_QD.shape).astype(np.float32)
    return Teacher(
        negatives.queries, negative_scores, pd.DataFrame({"query_id": of_query, "row": positives, "score": scores})
    )


def gradients(loss: RetrieverLoss, encoder: BiEncoder, examples: np.ndarray, precision: str = "fp32") -> dict[str, Any]:
    times = np.full_like(examples, STEP)
    return gradients_of(lambda: loss.training(loss.draw(examples, times)), encoder, STEP, precision, loss.device)


def of_case(folder: Path, name: str, dropout: bool, **more: Any) -> dict[str, Tensor]:
    loss, encoder = open_loss(folder, CASES[name], **more)
    encoder.train(dropout)
    return gradients(loss, encoder, CASES[name].get("examples", EXAMPLES))


def slow_gradients(folder: Path, case: Mapping[str, Any]) -> dict[str, Tensor]:
    """Encode all texts together without dropout, with a loss for each width and a single backward pass."""
    loss, encoder = open_loss(folder, case)
    encoder.eval()
    settings, sampler, examples = loss.config, loss.sampler, case.get("examples", EXAMPLES)
    groups = sampler.draw(examples, np.full_like(examples, STEP))
    rows = sorted({int(row) for row in groups.rows_BK.ravel() if row >= 0})
    place = torch.tensor([[rows.index(row) if row >= 0 else 0 for row in row_K] for row_K in groups.rows_BK.tolist()])
    offsets, answers = sampler.offsets, sampler.positives
    right = [set(answers[offsets[query] : offsets[query + 1]].tolist()) for query in examples]
    negative = torch.tensor([[row not in known for row in rows] for known in right])

    def encode(texts: list[str], role: Any) -> Tensor:
        return encoder(*encoder.texts(texts, role).batch(range(len(texts)), CPU), role)

    queries, passages = encode(list(sampler.texts[examples]), "query"), encode(list(loss.texts[rows]), "passage")
    widths = {*(settings.matryoshka_dims or ()), 32}
    total = torch.zeros(())
    for width in widths:
        q, p = queries[:, :width], passages[:, :width]
        if encoder.settings.normalize:
            q, p = q / q.norm(dim=1, keepdim=True), p / p.norm(dim=1, keepdim=True)
        value = contrastive_loss(LossBatch(q, p, place[:, 0], negative), settings.temperature, settings.contrastive)
        if case.get("teacher"):
            scores = torch.stack([q[i] @ p[place[i]].T for i in range(len(q))]) / settings.temperature
            known = teacher_of(Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives"))
            teacher_BK, known_BK = map(torch.from_numpy, TeacherScores(known, sampler).of(groups))
            value = distillation_loss(scores, teacher_BK, known_BK) + settings.alpha * value
        total = total + value / len(widths)
    total.backward()
    found = {name: values.grad for name, values in encoder.named_parameters() if values.grad is not None}
    return {"loss": total.detach().double(), **found}


@pytest.mark.parametrize("way", [{}, PARTS, CACHED], ids=["at once", "in parts", "cached"])
@pytest.mark.parametrize("name", CASES)
def test_a_step_has_the_gradient_of_the_whole_loss(folder: Path, name: str, way: dict[str, Any]) -> None:
    assert_same(of_case(folder, name, dropout=False, **way), slow_gradients(folder, CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_cached_gradients_are_those_of_the_same_parts_encoded_once(folder: Path, name: str) -> None:
    """With dropout, each part uses the same mask in both of its encodings."""
    once, twice = (of_case(folder, name, dropout=True, **way) for way in (PARTS, CACHED))
    assert_same(twice, once)
    without = of_case(folder, name, dropout=False, **PARTS)
    assert not torch.allclose(without["loss"], once["loss"], rtol=0, atol=1e-3), "there was no dropout"


def test_cached_gradients_in_bf16_reach_every_parameter(folder: Path) -> None:
    """Autocast caches copies of the weights. Those made without gradients must not be used in the second encoding."""
    found = []
    for way in (PARTS, CACHED):
        loss, encoder = open_loss(folder, CASES["teacher"], **way)
        found.append(gradients(loss, encoder, EXAMPLES, "bf16"))
    assert_same(found[1], found[0], tolerance=0.02)


def test_cached_steps_keep_no_more_than_a_part(folder: Path) -> None:
    """Counts the bytes that are kept for backward passes between the losses of a step."""
    most = {}
    for name, way in {"in parts": PARTS, "cached": CACHED}.items():
        loss, _ = open_loss(folder, CASES["eq. 3"], **way)
        kept = [0]

        def count(values: Tensor, kept: list[int] = kept) -> Tensor:
            kept[-1] += values.nbytes
            return values

        with torch.autograd.graph.saved_tensors_hooks(count, lambda values: values):
            for part in loss.training(loss.draw(EXAMPLES, np.full_like(EXAMPLES, STEP))):
                part.backward()
                kept.append(0)
        most[name] = max(kept)
    assert most["cached"] < most["in parts"] / 2


def trained_by_one_and_two(
    folder: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path, **more: Any
) -> tuple[dict[str, Path], dict[str, Path], str]:
    """Train with one process and with two, compare the parameters, and return both outputs and the log of the two."""
    inputs = {name: folder / name for name in ("corpus", "encoder", "negatives")}
    settings = {"max_steps": 3, "batch_size": 5, "negatives_per_query": 3, "negatives_depth": 6, "precision": "fp32"}
    settings |= {"eval_steps": 1, **more}
    alone = run_step("train-retriever", inputs, "alone", **settings)
    both = {name: tmp_path / "both" / name for name in alone}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**inputs, **both, **settings}.items()]
    command = ["-m", "stillhouse.cli", "train-retriever", *flags, f"--work={tmp_path / 'work'}"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *command]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STILLHOUSE_QUIET": ""}
    done = subprocess.run(launch, capture_output=True, text=True, env=environment, timeout=240)
    log = done.stdout + done.stderr
    assert both["retriever"].is_dir(), log
    one, two = (BiEncoder.load(made["retriever"]).state_dict() for made in (alone, both))
    for name, values in one.items():
        if not name.endswith("key.bias"):  # its gradient is zero, so AdamW follows rounding errors
            torch.testing.assert_close(two[name], values, rtol=0, atol=2e-5, msg=lambda text, name=name: name + text)
    return alone, both, log


def test_two_processes_train_the_same_retriever_as_one(
    folder: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    """Compares the curves and the final parameters after several steps with dropout."""
    settings = {"matryoshka_dims": [8, 16], "contrastive": "simlm_code", "learning_rate": 0.001, "towers": "separate"}
    alone, both, log = trained_by_one_and_two(folder, run_step, tmp_path, **settings, **CACHED)
    assert log.count("[train-retriever] read") == 1, "one process alone writes and logs"
    curves = [pd.read_csv(made["curves"] / "curves.csv") for made in (alone, both)]
    assert len(curves[0]) == 4 and np.allclose(curves[0], curves[1], atol=1e-4)


@pytest.mark.long
def test_two_processes_rank_dev_queries_as_one(
    folder: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    """The processes share the batches of 3 dev queries and their passages."""
    settings = {"learning_rate": 0.01, "mini_batch_size": 2, "metric_for_best_model": "ndcg10"}
    alone, both, _ = trained_by_one_and_two(folder, run_step, tmp_path, **settings)
    signals = [pd.read_csv(made["curves"] / "signals.csv") for made in (alone, both)]
    assert signals[0]["value"].nunique() > 1 and signals[1].equals(signals[0])


def test_a_nan_vector_ends_the_training(folder: Path, tmp_path: Path) -> None:
    _, encoder = open_loss(folder, {})
    forward = encoder.forward
    encoder.forward = lambda *inputs: forward(*inputs) * (float("nan") if encoder.training else 1.0)  # type: ignore[method-assign]
    with pytest.raises(FloatingPointError, match="the loss is nan at step 0"):
        train(folder, encoder, tmp_path, **CACHED)


def train(folder: Path, encoder: BiEncoder, work: Path, **more: Any) -> None:
    corpus, negatives = Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives")
    drawn = {"negatives_per_query": 3, "negatives_depth": 6}
    config = RetrieverConfig(**{**SETTINGS, "max_steps": 1, **drawn, **more})
    fit_retriever(encoder, corpus, negatives, None, config, Context(work, "cpu", True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"matryoshka_dims": [8, 33]}, "\\[8, 33\\]: the encoder's vectors have only width 32"),
        ({"matryoshka_dims": [16, 8]}, "must ascend without repeats: \\[16, 8\\]"),
        ({"matryoshka_dims": [8, 8]}, "must ascend without repeats"),
        ({"gradient_cache": True}, "saves no memory without mini_batch_size"),
        ({"batch_size": 1, "negatives_per_query": 0}, "nothing can be learned from a batch of one query"),
    ],
)
def test_invalid_settings_are_refused(folder: Path, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(folder, open_loss(folder, {})[1], tmp_path, **settings)
