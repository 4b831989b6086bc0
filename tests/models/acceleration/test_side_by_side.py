"""Batches computed side by side: their order, their exact bits, and the threads afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.core.context import Context
from stillhouse.models.acceleration.batches import side_by_side, threads_of
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.settings import InferenceConfig

CPU = torch.device("cpu")


def test_results_come_in_the_order_of_batches(threads: int) -> None:
    turns = [threading.Event() for _ in range(20)]

    def compute(number: int) -> int:
        if threads > 1:  # the second of each pair ends before the first
            turns[number].set()
            assert number % 2 or turns[number + 1].wait(60)
        return number * number

    assert list(side_by_side(range(20), compute, "fp32", CPU)) == [(n, n * n) for n in range(20)]
    assert torch.get_num_threads() == threads == threads_of(CPU)


def test_threads_compute_without_gradients_in_the_given_precision(threads: int) -> None:
    def compute(_: int) -> tuple[bool, bool, int]:
        return torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_num_threads()

    for precision in ("fp32", "bf16"):
        for _, found in side_by_side(range(4), compute, precision, CPU):
            assert found == (True, precision == "bf16", 1)


def test_an_error_is_raised_to_the_reader_and_threads_are_restored(threads: int) -> None:
    def compute(number: int) -> int:
        if number == 3:
            raise ValueError("batch 3")
        return number

    with pytest.raises(ValueError, match="batch 3"):
        list(side_by_side(range(40), compute, "fp32", CPU))
    assert torch.get_num_threads() == threads
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batch_")]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_vectors_have_the_bits_of_one_thread(tiny_model: Path, tmp_path: Path, threads: int, precision: str) -> None:
    encoder, context = BiEncoder.load(tiny_model, passage_length=30), Context(tmp_path, "cpu", quiet=True)
    rng = np.random.default_rng(1)
    texts = encoder.passages([" ".join(rng.choice(["red", "bird", "sings"], size)) for size in rng.integers(1, 30, 90)])
    config = InferenceConfig(precision=precision, batch_tokens=96)
    found = encode(encoder, texts, context, "test", config)
    torch.set_num_threads(1)
    assert np.array_equal(found, encode(encoder, texts, context, "test", config))
