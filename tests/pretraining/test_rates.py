"""For every row of the objective table: the share of corrupted tokens, which ones, and what replaces them.

The rates, nesting and replacements are repeated here by name, as the papers state them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from small_bert import small_bert

from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch, Corruptor
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.objectives import NAMES, find_objective
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))
VOCABULARY = 200
PASSAGES, LONGEST = 300, 70
RATES = [(0.3, 0.5), (0.15, 0.45)]


@dataclass(frozen=True)
class Stated:
    """What a paper says about a row: how positions are drawn and what replaces them, for encoder and decoder."""

    encoder: tuple[str, str]
    decoder: tuple[str, str] | None = None


STATED = {
    "mlm": Stated(("random", "80_10_10")),  # Devlin et al. 2019, 30 % in SimLM §5.1
    "simlm": Stated(("random", "generator"), ("nested", "generator")),  # SimLM eq. 1 and below it
    "simlm_joint": Stated(("random", "generator"), ("nested", "generator")),
    "simlm_joint_random": Stated(("random", "generator"), ("nested", "generator")),
    "enc_dec_mlm": Stated(("random", "mask"), ("nested", "mask")),  # SimLM §5.1: as simlm, without the generator
    "enc_dec_rtd": Stated(("random", "generator"), ("nested", "generator")),  # SimLM §5.1
    "condenser": Stated(("random", "80_10_10")),  # SimLM §5.1; its head reads the encoder's input
    "autoencoder": Stated(("none", "none"), ("all", "mask")),  # SimLM §5.1
    "auto_encoding": Stated(("random", "mask"), ("random", "mask")),  # BoW eq. 2, 4
    "auto_regression": Stated(("random", "mask"), ("none", "none")),  # BoW eq. 2, 6
    "enhanced_decoding": Stated(("random", "mask"), ("none", "none")),  # BoW eq. 2, 8
    "bow": Stated(("random", "mask")),  # BoW Algorithm 2
    "cdmae": Stated(("random", "80_10_10"), ("importance", "80_10_10")),  # CDMAE eq. 1, §3.2
    "simlm_importance": Stated(("random", "generator"), ("importance", "generator")),
    "bow_importance": Stated(("importance", "mask")),
    "cdmae_bow": Stated(("random", "80_10_10"), ("importance", "80_10_10")),
}


@pytest.fixture(scope="module")
def cache() -> TokenCache:
    """Passages of 1 to 60 tokens, some of them special, in words of 1 to about 5 tokens."""
    rng = np.random.default_rng(0)
    lengths = np.concatenate([[1, 2, 3], rng.integers(20, 61, size=PASSAGES - 3)])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = rng.integers(5, VOCABULARY, size=offsets[-1]).astype(np.int32)
    ids[rng.random(len(ids)) < 0.03] = 1
    ids[offsets[:-1]] = 7  # so that every passage has a token that is not special
    starts = rng.random(len(ids)) < 0.7
    starts[offsets[:-1]] = True
    return TokenCache(ids, offsets, starts, SPECIALS, rng.normal(size=len(ids)).astype(np.float32))


@pytest.fixture(scope="module")
def generator() -> Generator:
    model = small_bert(VOCABULARY, 8, max_position_embeddings=LONGEST, initializer_range=0.02)
    return Generator.of(model, SPECIALS, torch.device("cpu"))


def corrupt(cache: TokenCache, generator: Generator, name: str, **settings: object) -> CorruptedBatch:
    config = PretrainingConfig(objective=name, max_length=LONGEST, **settings)  # type: ignore[arg-type]
    make = Corruptor(cache, VOCABULARY, find_objective(name), config, torch.device("cpu"), generator)
    return make(np.arange(len(cache)), np.random.default_rng(1))


def as_read(cache: TokenCache) -> tuple[np.ndarray, np.ndarray]:
    """Return the passages with special tokens and padding, and where a token may be corrupted, row by row."""
    ids = np.full((len(cache), int(np.diff(cache.offsets).max()) + 2), SPECIALS.pad)
    for row, (begin, end) in enumerate(zip(cache.offsets[:-1], cache.offsets[1:])):
        ids[row, : end - begin + 2] = [SPECIALS.cls, *cache.ids[begin:end], SPECIALS.sep]
    return ids, ids > max(SPECIALS.all)


def check_mask(mask: np.ndarray, ordinary: np.ndarray, draw: str, rate: float) -> None:
    """Check the number of corrupted tokens per passage, or their share of all where the paper states a probability."""
    assert not (mask & ~ordinary).any(), "special tokens and padding are never corrupted"
    sizes, drawn = ordinary.sum(1), mask.sum(1)
    if draw == "random":
        np.testing.assert_array_equal(drawn, np.maximum(1, np.rint(sizes * rate)))
    elif draw == "importance":  # CDMAE Algorithm 1, line 6
        np.testing.assert_array_equal(drawn, np.maximum(1, np.floor(sizes * rate)))
    elif draw == "nested":
        assert mask.sum() / ordinary.sum() == pytest.approx(rate, abs=0.01)
    else:
        np.testing.assert_array_equal(drawn, sizes if draw == "all" else 0)


def check_replacement(given: np.ndarray, ids: np.ndarray, mask: np.ndarray, replacement: str) -> None:
    np.testing.assert_array_equal(given[~mask], ids[~mask])
    put, was = given[mask], ids[mask]
    if replacement == "mask":
        assert (put == SPECIALS.mask).all()
    elif replacement == "80_10_10":
        ordinary = VOCABULARY - len(SPECIALS.all)
        assert (put == SPECIALS.mask).mean() == pytest.approx(0.8, abs=0.02)
        assert (put == was).mean() == pytest.approx(0.1 + 0.1 / ordinary, abs=0.015)
        others = put[(put != SPECIALS.mask) & (put != was)]
        assert others.min() > max(SPECIALS.all), "a random token is no special one"
        assert len(np.unique(others)) > 0.5 * ordinary
    elif replacement == "generator":
        assert put.min() > max(SPECIALS.all), "the generator puts neither [MASK] nor another special token there"
        assert (put != was).mean() > 0.9  # this generator is untrained
    else:
        assert not mask.any()


def arrays(corrupted: Corrupted) -> tuple[np.ndarray, np.ndarray]:
    return corrupted.ids_BL.numpy(), corrupted.mask_BL.numpy()


def test_every_objective_is_stated() -> None:
    assert set(STATED) == set(NAMES)


@pytest.mark.parametrize(("encoder_rate", "decoder_rate"), RATES)
@pytest.mark.parametrize("name", NAMES)
def test_rates_replacements_and_nesting(
    cache: TokenCache, generator: Generator, name: str, encoder_rate: float, decoder_rate: float
) -> None:
    batch = corrupt(cache, generator, name, encoder_mlm_probability=encoder_rate, decoder_mlm_probability=decoder_rate)
    ids, ordinary = as_read(cache)
    np.testing.assert_array_equal(batch.ids_BL, ids)
    np.testing.assert_array_equal(batch.special_BL, ~ordinary)
    stated = STATED[name]
    given, inner = arrays(batch.encoder)
    check_mask(inner, ordinary, stated.encoder[0], encoder_rate)
    check_replacement(given, ids, inner, stated.encoder[1])
    assert (batch.decoder is None) == (stated.decoder is None)
    if batch.decoder is None or stated.decoder is None:
        return
    given, outer = arrays(batch.decoder)
    check_mask(outer, ordinary, stated.decoder[0], decoder_rate)
    check_replacement(given, ids, outer, stated.decoder[1])
    if stated.decoder[0] == "nested":
        assert (inner <= outer).all(), "what is replaced in the encoder is replaced in the decoder (SimLM §3.1)"
    elif stated.decoder[0] in ("random", "importance"):
        # The masks are independent (CDMAE eq. 1): the encoder's has the same share inside the decoder's as overall.
        both = (inner & outer).sum() / outer.sum()
        assert both == pytest.approx(inner.sum() / ordinary.sum(), abs=0.025)


@pytest.mark.parametrize("name", [name for name in NAMES if "random" in STATED[name].encoder])
def test_whole_words_are_drawn_where_the_setting_says_so(cache: TokenCache, generator: Generator, name: str) -> None:
    batch = corrupt(cache, generator, name, mask_unit="word")
    _, ordinary = as_read(cache)
    masks = [(batch.encoder.mask_BL.numpy(), 0.3)]
    if batch.decoder is not None and STATED[name].decoder[0] in ("random", "nested"):  # type: ignore[index]
        masks.append((batch.decoder.mask_BL.numpy(), 0.5))
    for mask, rate in masks:
        assert not (mask & ~ordinary).any()
        assert mask.any(1).all(), "every passage has a loss"
        # A word that does not fit the budget is left out, so the share lies a little below the rate.
        assert mask.sum() / ordinary.sum() == pytest.approx(rate, abs=0.02)
        for row, begin in enumerate(cache.offsets[:-1]):
            positions = np.flatnonzero(ordinary[row])
            # A special token in a text splits a word, because it cannot be drawn with its neighbours.
            goes_on = ~cache.word_starts[begin + positions[1:] - 1] & (np.diff(positions) == 1)
            np.testing.assert_array_equal(mask[row, positions[1:]][goes_on], mask[row, positions[:-1]][goes_on])


@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_what_positions_do_not_see_in_enhanced_decoding(cache: TokenCache, generator: Generator, rate: float) -> None:
    """BoW §3.1: the diagonal and a random sample for every position; [CLS] and [SEP] are seen, padding never."""
    batch = corrupt(cache, generator, "enhanced_decoding", decoder_mlm_probability=rate)
    ids, ordinary = as_read(cache)
    assert batch.hidden_BLL is not None
    hidden = batch.hidden_BLL.numpy()
    own = np.eye(ids.shape[1], dtype=bool)[None]
    assert hidden[np.broadcast_to(own, hidden.shape)].all()
    assert np.broadcast_to((ids == SPECIALS.pad)[:, None], hidden.shape)[~hidden].sum() == 0
    seen_always = ~ordinary & (ids != SPECIALS.pad)
    assert not (hidden & seen_always[:, None] & ~own).any()
    drawn = np.broadcast_to(ordinary[:, None], hidden.shape) & ~own
    assert hidden[drawn].mean() == pytest.approx(rate, abs=0.01)
    differ = (hidden[3:, 1] != hidden[3:, 2])[:, 3:] & ordinary[3:, 3:]
    assert differ.any(1).mean() > 0.9, "positions have visible tokens of their own"
