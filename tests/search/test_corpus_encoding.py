"""Encoding a corpus: vectors that do not depend on other texts, resuming, and when a kept vector is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from word_pieces import WORDS

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.settings import InferenceConfig
from stillhouse.search import corpus_encoding
from stillhouse.search.corpus_encoding import Encoded, cache_folder, encode_passages, model_key
from stillhouse.search.embeddings import segments_of

FP32 = InferenceConfig(precision="fp32", batch_tokens=64)
BF16 = InferenceConfig(precision="bf16", batch_tokens=64)


def random_texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size)) for size in rng.integers(1, 40, count)]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "work", "cpu", quiet=True)


@pytest.fixture
def encoder(tiny_model: Path) -> BiEncoder:
    return BiEncoder.load(tiny_model, pooling="mean", passage_length=30)


def new_segments(context: Context) -> Path:
    return context.work / "segments"


def encoded(encoder: BiEncoder, texts: list[str], context: Context, known: tuple[Path, ...] = ()) -> Encoded:
    ids = PassageIds([f"p{n}" for n in range(len(texts))])
    rows = np.arange(len(texts))
    return encode_passages(
        encoder, lambda part: [[texts[n] for n in part]], ids, rows, known, new_segments(context), context, FP32
    )


@pytest.mark.parametrize("config", [FP32, BF16])
def test_a_vector_is_the_same_to_the_bit_in_any_company(
    encoder: BiEncoder, context: Context, config: InferenceConfig
) -> None:
    texts = random_texts(60)
    together = encode(encoder, encoder.passages(texts), context, "test", config)
    for chosen in ([3], [59, 3, 7], list(range(0, 60, 2)), list(range(59, -1, -1))):
        large = InferenceConfig(precision=config.precision, batch_tokens=4096)
        for budget in (config, large):
            apart = encode(encoder, encoder.passages([texts[n] for n in chosen]), context, "test", budget)
            assert np.array_equal(apart, together[chosen])


def test_gpu_batches_of_one_length_are_equally_large(
    encoder: BiEncoder, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU branch, run on the CPU: batches of a length have equally many texts, and vectors stay the same."""
    texts = random_texts(40)
    expected = encode(encoder, encoder.passages(texts), context, "test", FP32)
    shapes = set()
    forward = encoder.forward

    def noted(ids: torch.Tensor, mask: torch.Tensor, role: str) -> torch.Tensor:
        shapes.add(tuple(ids.shape))
        return forward(ids, mask, role)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder, "forward", noted)
    monkeypatch.setattr("stillhouse.models.encoder.filled_up", lambda device: True)
    assert np.array_equal(encode(encoder, encoder.passages(texts), context, "test", FP32), expected)
    assert shapes == {(max(1, 64 // length), length) for _, length in shapes}


def test_blocks_cost_as_much_memory_as_one(
    encoder: BiEncoder, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_encoding, "BLOCK", 16)
    texts, held = random_texts(50), []
    passages = encoder.passages

    def some(rows: np.ndarray) -> Iterator[list[str]]:
        return ([texts[n] for n in rows[start : start + 10]] for start in range(0, len(rows), 10))

    def noted(block: list[str]) -> object:
        held.append(len(block))
        return passages(block)

    monkeypatch.setattr(encoder, "passages", noted)
    done = encode_passages(encoder, some, PassageIds([""] * 50), np.arange(50), (), context.work, context, FP32)
    assert max(held) == 16 and sum(held) == done.computed == len(set(texts))
    expected = encode(encoder, encoder.passages(texts), context, "test", FP32)
    assert np.array_equal(done.embeddings.rows(np.arange(50)), expected)


def test_an_interrupted_run_is_resumed(encoder: BiEncoder, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_encoding, "BLOCK", 16)
    texts = sorted(set(random_texts(60)))
    whole = encoded(encoder, texts, Context(context.work / "whole", "cpu", True)).embeddings.rows(np.arange(len(texts)))
    write, written = corpus_encoding.write_segment, []

    def killed_at_the_third(*arguments: object) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(arguments)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(corpus_encoding, "write_segment", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        encoded(encoder, texts, context)
    monkeypatch.setattr(corpus_encoding, "write_segment", write)
    again = encoded(encoder, texts, context)
    assert again.computed == len(texts) - 32
    assert np.array_equal(again.embeddings.rows(np.arange(len(texts))), whole)


def test_known_vectors_are_not_computed_again(encoder: BiEncoder, context: Context) -> None:
    encoded(encoder, ["a fish", "two birds"], context)
    later = Context(context.work / "later", "cpu", quiet=True)
    done = encoded(encoder, ["two birds", "three trees"], later, (new_segments(context),))
    assert done.computed == 1
    assert len(segments_of(new_segments(later))) == 1


def one_weight(encoder: BiEncoder) -> BiEncoder:
    with torch.no_grad():
        next(iter(encoder.parameters())).view(-1)[7] += 1e-6
    return encoder


def other_layer_norm(encoder: BiEncoder) -> BiEncoder:
    encoder.tower("passage").encoder.config.layer_norm_eps = 1e-6  # type: ignore[union-attr, assignment]
    return encoder


def other_tokenizer(encoder: BiEncoder) -> BiEncoder:
    from tokenizers import normalizers

    encoder.tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    return encoder


def reloaded(**changes: object) -> Callable[[BiEncoder, Path], BiEncoder]:
    return lambda encoder, folder: BiEncoder.load(folder, **{"pooling": "mean", "passage_length": 30, **changes})


STALE = {
    "one weight": lambda encoder, folder: one_weight(encoder),
    "layer norm": lambda encoder, folder: other_layer_norm(encoder),
    "tokenizer": lambda encoder, folder: other_tokenizer(encoder),
    "length": reloaded(passage_length=29),
    "pooling": reloaded(pooling="cls"),
    "normalisation": reloaded(normalize=False),
    "prompt": reloaded(passage_prompt="a "),
}


@pytest.mark.parametrize("what", STALE)
def test_another_model_has_another_key(tiny_model: Path, encoder: BiEncoder, context: Context, what: str) -> None:
    before = model_key(encoder, FP32, context)
    assert model_key(STALE[what](encoder, tiny_model), FP32, context) != before


def test_the_key_ignores_settings_that_change_no_vector(tiny_model: Path, encoder: BiEncoder, context: Context) -> None:
    before = model_key(encoder, FP32, context)
    encoder.queries(["a fish"])  # sets the tokenizer's own truncation
    encoder.passages(["a fish"])
    other = BiEncoder.load(tiny_model, pooling="mean", passage_length=30, query_length=9)
    larger = InferenceConfig(precision="fp32", batch_tokens=999)
    assert {model_key(encoder, FP32, context), model_key(other, larger, context)} == {before}
    assert model_key(encoder, BF16, context) != before


def test_another_version_of_the_encoding_caches_elsewhere(
    encoder: BiEncoder, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cache_folder("model", FP32, context)
    monkeypatch.setattr(corpus_encoding, "VERSION", corpus_encoding.VERSION + 1)
    assert cache_folder("model", FP32, context) != before


def test_a_nan_vector_names_its_passage(encoder: BiEncoder, context: Context) -> None:
    fish = encoder.tokenizer.convert_tokens_to_ids("fish")
    with torch.no_grad():
        encoder.tower("passage").encoder.get_input_embeddings().weight[fish] = float("nan")  # type: ignore[union-attr, operator]
    with pytest.raises(InputError, match=r"passage 'p1' is not finite \(nor are 1 others\)"):
        encoded(encoder, ["a bird", "a fish", "a tree", "one fish"], context)
    assert not segments_of(new_segments(context))
