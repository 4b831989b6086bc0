"""Where the time of a step of `bow` goes on a GPU, what compiling the layers gives, and which attention is fastest.

The part `profile` of `gpu`. The sizes are those of the part `pretraining`; `--tiny` tries it without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import objectives_speed as speed
from benchmarks.clock import Clock, kernels_of
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import write_as_measured
from stillhouse.core.context import Context

TURNS, STEPS, ROWS, NAME = 3, 6, 30, 70
KERNELS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION)
DROPOUT = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_profile", __doc__)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args(argv)
    write_as_measured(report, arguments)
    return 0


def report(folder: Path, arguments: argparse.Namespace) -> Iterator[str]:
    context, size = Context(folder, quiet=True), speed.TINY if arguments.tiny else speed.LARGE
    clock = Clock(context.torch_device())
    shown = "python -m benchmarks gpu --folder build/gpu --only profile"
    yield from ("# What a step's time goes to", "", f"Command: `{shown}`.", "")
    yield machine("torch", "transformers")
    yield from ("", "| step of `bow` | ms | passages/s | ms of the first turn |", "|---|---|---|---|")
    (entry,) = speed.open_entries(["bow"], size, clock)
    entry.config = replace(entry.config, padding="kept")
    tables = {"as it is": None, "layers compiled": None}
    for label in tables:
        if label != "as it is":
            for layer in entry.module.model.base_model.encoder.layer:  # type: ignore[union-attr]
                layer.compile()
        begun = clock()
        turns = [speed.measure(entry, size, STEPS, 0, context, clock).sum()]
        first = clock() - begun
        turns += [speed.measure(entry, size, STEPS, turn, context, clock).sum() for turn in range(1, TURNS)]
        seconds = float(np.median(turns[1:]))
        yield f"| {label} | {1000 * seconds:.1f} | {size.batch / seconds:,.0f} | {1000 * first:,.0f} |"
        tables[label] = kernels(lambda: speed.measure(entry, size, STEPS, TURNS, context, clock), clock)
    for label, rows in tables.items():
        yield from ("", f"Kernels of a step, {label}:", "", "| kernel | ms | calls |", "|---|---|---|", *(rows or []))
    if clock.device.type == "cuda":
        yield from ("", "| attention, forward and backward | mask | ms |", "|---|---|---|")
        yield from attention(size, clock)


def kernels(run: Any, clock: Clock) -> list[str]:
    """The kernels that take most of a step's time."""
    if clock.device.type != "cuda":
        return []
    found = sorted(kernels_of(run), key=lambda each: -each.self_device_time_total)[:ROWS]
    return [
        f"| `{each.key[:NAME]}` | {each.self_device_time_total / 1000 / STEPS:.2f} | {each.count / STEPS:.0f} |"
        for each in found
    ]


def attention(size: speed.Size, clock: Clock) -> Iterator[str]:
    """Each kernel that PyTorch has, with dropout, with and without a mask of the padding."""
    heads = size.width // 64
    shape = (size.batch, size.length, heads, 64)
    query, key, value = (
        torch.randn(shape, device=clock.device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3)
    )
    mask = torch.ones(size.batch, 1, size.length, size.length, dtype=torch.bool, device=clock.device)
    for kernel in KERNELS:
        for name, given in (("none", None), ("of padding", mask)):
            try:
                with sdpa_kernel(kernel):
                    for number in range(12):
                        if number == 2:
                            begun = clock()
                        made = scaled_dot_product_attention(query, key, value, attn_mask=given, dropout_p=DROPOUT)
                        made.backward(made)
                    yield f"| `{kernel.name}` | {name} | {100 * (clock() - begun):.2f} |"
            except RuntimeError:
                yield f"| `{kernel.name}` | {name} | not possible |"
