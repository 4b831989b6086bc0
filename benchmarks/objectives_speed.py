"""How fast each objective trains, and how fast its arithmetic allows; a section of a page.

    python -m benchmarks objectives speed             # 6 layers of width 384, 16 passages of 128 tokens: two CPU cores
    python -m benchmarks objectives speed --gpu-size  # BERT-base, 64 passages of 512 tokens: BoW Table 4

All objectives train one encoder in turns. A turn runs the project's own training loop for a few steps and does not
count the first. In a round each objective has one turn, and its speed is divided by the speed of `mlm` in the same
round, so other load on the machine affects all equally. The page shows the median over rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForMaskedLM

from benchmarks.clock import Clock, matrix_peak
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import from_template, write_page
from benchmarks.random_passages import SENTENCE, SPECIALS, VOCABULARY, random_passages
from stillhouse.core.context import Context
from stillhouse.models.acceleration.batches import Ahead
from stillhouse.models.acceleration.device import autocast, computed_in, has_bf16
from stillhouse.models.acceleration.unpadded import leaves_padding_out, without_padding
from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import TABLE
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.task import open_pairs
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import TokenCache
from stillhouse.training.loop import train

BASE, PAIRS = "mlm", "ict+bfs+wlp"
BATCHES, HELD_OUT = 16, 0.3
"""Batches of passages, and the share of their articles that is held out: enough that two of few are linked."""
PAPER = {"auto_encoding": "−17 %", "auto_regression": "−20 %", "enhanced_decoding": "−68 %", "bow": "−1 %"}
"""BoW Table 4, the change of training speed."""


@dataclass(frozen=True)
class Size:
    """Of the encoder, and of a step: `batch` passages, the longest of `length` tokens."""

    layers: int
    width: int
    batch: int
    length: int


SMALL, TABLE_4 = Size(6, 384, 16, 128), Size(12, 768, 64, 512)
LARGE, TINY = Size(12, 768, 256, 144), Size(2, 192, 4, 24)
"""Those of the parts of `gpu`."""


@dataclass
class TimedGenerator:
    """A generator that marks the beginning and the end of its forward pass and sampling."""

    generator: Generator
    clock: Clock
    marks: tuple[Any, Any] = (None, None)

    def replace(self, *inputs: Any) -> tuple[list[Tensor], Tensor | None]:
        begun = self.clock.mark()
        made = self.generator.replace(*inputs)
        self.marks = begun, self.clock.mark()
        return made


@dataclass
class Entry:
    """An objective under measurement; `make` draws and moves its batches.

    `turns`: a turn's seconds a step for data, generator, gradients and AdamW.
    """

    name: str
    module: nn.Module
    make: Any
    config: PretrainingConfig
    generator: TimedGenerator | None
    arithmetic: float = 0.0
    turns: list[NDArray[np.float64]] = field(default_factory=list)

    def seconds(self) -> NDArray[np.float64]:
        """Seconds a step, of every turn."""
        return np.array([turn.sum() for turn in self.turns])

    def share(self, part: int) -> float:
        return float(np.median([turn[part] / turn.sum() for turn in self.turns]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("objectives speed", "How fast each objective trains.")
    parser.set_defaults(page=Path("build/objectives/speed.md"))
    parser.add_argument("--layers", type=int, help=f"layers of the encoder; {SMALL.layers}")
    parser.add_argument("--width", type=int, help=f"width of the encoder, a multiple of 192; {SMALL.width}")
    parser.add_argument("--batch", type=int, help=f"passages a step; {SMALL.batch}")
    parser.add_argument("--length", type=int, help=f"tokens of a batch's longest passage; {SMALL.length}")
    parser.add_argument("--rounds", type=int, default=9, help="turns that every objective has")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--padding", default="auto", help="the setting of this name")
    parser.add_argument("--gpu-size", action="store_true", help="the size of BoW Table 4: 12 × 768, batch 64 × 512")
    parser.add_argument("--objectives", nargs="+", help="these alone, and mlm")
    parser.add_argument("--this-size-only", action="store_true", help="do not count the arithmetic of --gpu-size too")
    args = parser.parse_args(arguments)
    given = {name: getattr(args, name) for name in ("layers", "width", "batch", "length") if getattr(args, name)}
    size = replace(TABLE_4 if args.gpu_size else SMALL, **given)
    names = [objective.name for objective in TABLE] + [PAIRS]
    unknown = set(args.objectives or []) - set(names)
    if size.width % 192 or args.steps < 2 or args.rounds < 1 or unknown:
        parser.error(f"--width is a multiple of 192, --steps at least 2, --rounds at least 1, --objectives of {names}")
    names = [name for name in names if name == BASE or not args.objectives or name in args.objectives]
    with TemporaryDirectory() as folder:
        context = Context(Path(folder), quiet=True)
        clock = Clock(context.torch_device())
        larger = {} if args.gpu_size or args.this_size_only else count(names, replace(TABLE_4, batch=1), clock)
        entries = open_entries(names, size, clock)
        entries = [replace(each, config=replace(each.config, padding=args.padding)) for each in entries]
        for each in entries:
            each.arithmetic = arithmetic(each, size, clock.device)
        peak = 0.0
        for turn in range(args.rounds):
            peak = max(peak, matrix_peak(computed_in(entries[0].config.precision, clock.device), clock))
            for each in entries:
                each.turns.append(measure(each, size, args.steps, turn, context, clock))
                print(f"round {turn + 1}: {each.name} {each.turns[-1].sum():.3f} s a step", file=sys.stderr, flush=True)
    lines = list(page(entries, size, args, larger, peak, sys.argv[1:] if arguments is None else arguments))
    write_page(args.page, lines)
    return 0


def open_entries(names: Sequence[str], size: Size, clock: Clock) -> list[Entry]:
    """The objectives on one encoder and the same passages."""
    cache = random_passages(BATCHES, max(size.batch, 4), size.length)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // 64,
        intermediate_size=4 * size.width,
        max_position_embeddings=max(512, size.length),
    )
    torch.manual_seed(0)
    encoder = BertForMaskedLM(config).to(clock.device)  # type: ignore[arg-type]
    return [entry(name, encoder, cache, size, clock) for name in names]


def count(names: Sequence[str], size: Size, clock: Clock) -> dict[str, float]:
    """The arithmetic of the objectives at a size at which nothing is timed."""
    return {each.name: arithmetic(each, size, clock.device) for each in open_entries(names, size, clock)}


def entry(name: str, encoder: BertForMaskedLM, cache: TokenCache, size: Size, clock: Clock) -> Entry:
    """An objective on the encoder that all share; decoder and generator are its own."""
    # The rate is so low that turns leave the shared encoder about as it was.
    config = PretrainingConfig(
        objective=name,
        max_length=size.length,
        query_length=64,
        passage_length=size.length,
        learning_rate=1e-6,
        eval_steps=10**6,
    )
    torch.manual_seed(0)
    row = config.row()
    if row.pairs:
        make = open_pairs(
            cache,
            tuple(name.split("+")),
            config,
            heldout_fraction=HELD_OUT,
            max_eval_samples=64,
            seed=0,
            device=clock.device,
        )
        return Entry(name, PairPretraining(encoder, "cls", config, SPECIALS).to(clock.device), make, config, None)
    generator = None
    if row.needs_generator:
        model = ElectraForMaskedLM(electra(size))
        generator = TimedGenerator(Generator.of(model, SPECIALS, clock.device, row.generator != "frozen"), clock)
    learner = generator.generator.model if generator and generator.generator.learns else None
    module = BottleneckPretraining(encoder, row, "cls", generator=learner).to(clock.device)
    corruptor = Corruptor(cache, VOCABULARY, row, config, clock.device, generator)  # type: ignore[arg-type]
    return Entry(name, module, corruptor, config, generator)


def electra(size: Size) -> ElectraConfig:
    """A generator of a third of the encoder's width, as ELECTRA-base has it beside BERT-base."""
    width = size.width // 3
    return ElectraConfig(
        vocab_size=VOCABULARY,
        embedding_size=size.width,
        hidden_size=width,
        num_hidden_layers=size.layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=max(512, size.length),
    )


def arithmetic(each: Entry, size: Size, device: torch.device) -> float:
    """Operations of the matrix products of a step, forward and backward, those of a generator included.

    Attention is counted as the products that it is made of: what fused kernels compute twice is not needed work, and
    the counter does not know the one for CPUs. Padding counts where the training computes it.
    """
    each.module.train()
    unpadded = leaves_padding_out(each.module, each.config.padding, device)
    rows = without_padding(each.module) if unpadded else nullcontext()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), rows:
        with autocast(each.config.precision, device):
            loss = each.module(each.make(np.arange(size.batch), np.random.default_rng(0)))
        loss.backward()
    each.module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def measure(each: Entry, size: Size, steps: int, turn: int, context: Context, clock: Clock) -> NDArray[np.float64]:
    """Seconds a step for data, generator, forward and backward, clip and AdamW; medians over the turn's steps.

    As in a real training, the next batch is drawn in another thread, and a GPU works on while Python goes ahead.
    """
    times: list[tuple[Any, ...]] = []

    def draw(step: int) -> Any:
        first = size.batch * ((turn * steps + step) % BATCHES)
        return each.make.draw(np.arange(first, first + size.batch), np.random.default_rng([turn, step]))

    def batch_losses(step: int) -> Iterator[Tensor]:
        begun = clock.mark()
        inputs = each.make.batch(ahead(step))
        made = clock.mark()
        yield each.module(inputs)
        times.append((begun, *(each.generator.marks if each.generator else (begun, begun)), made, clock.mark()))

    ends: list[Any] = []

    def heldout_losses() -> list[tuple[int, float]]:
        ends.append(clock.mark())
        return [(1, 0.0)]

    with TemporaryDirectory(dir=context.work) as work, Ahead(draw, steps) as ahead:
        train(each.module, batch_losses, heldout_losses, steps, each.config, replace(context, work=Path(work)))
    each.module.zero_grad(set_to_none=True)
    parts = []
    for (begun, first, last, made, learned), end in zip(times, [*(each[0] for each in times[1:]), ends[-1]]):
        generator = clock.between(first, last)
        data = clock.between(begun, made) - generator
        parts.append((data, generator, clock.between(made, learned), clock.between(learned, end)))
    median: NDArray[np.float64] = np.median(np.array(parts[1:]), axis=0)
    return median


def page(
    entries: list[Entry],
    size: Size,
    args: argparse.Namespace,
    larger: dict[str, float],
    peak: float,
    arguments: Sequence[str],
) -> Iterator[str]:
    """The lines of the results page.

    `larger` is the arithmetic at the size of BoW Table 4, empty to leave it out, `peak` that of matrix products.
    """
    cuda = torch.cuda.is_available()
    precision = "bf16" if has_bf16(torch.device("cuda" if cuda else "cpu")) else "fp32"
    shown = " ".join(["python -m benchmarks objectives speed", *arguments])
    yield from ["# How fast each objective trains", "", f"Command: `{shown}`.", ""]
    yield f"{machine('numpy', 'torch', 'transformers')} Precision: {precision}."
    given = {"size": size, "vocabulary": VOCABULARY, "rounds": args.rounds, "steps": args.steps - 1}
    text = from_template("objectives_speed", **given, peak=peak / 1e9, pairs=PAIRS, sentence=SENTENCE)
    yield from ["", *text, ""]
    allowed = f"allowed at {TABLE_4.layers} × {TABLE_4.width}, {TABLE_4.length} tokens"
    columns = (
        "objective, passages/s, to mlm, arithmetic, allowed, reached, of the peak, data, generator, optimiser, BoW"
    )
    heads = [*columns.split(", "), *([allowed] if larger else [])]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    base = entries[0]
    for each in entries:
        speed = base.seconds() / each.seconds()
        low, middle, high = np.percentile(speed, [25, 50, 75])
        more = each.arithmetic / base.arithmetic
        cells = [f"`{each.name}`", f"{size.batch / np.median(each.seconds()):.1f}"]
        cells += [f"{change(middle)} ± {50 * (high - low):.1f}", f"{more:.3f}", change(1 / more)]
        cells += [f"{100 * middle * more:.1f} %"]
        cells += [f"{100 * each.arithmetic / np.median(each.seconds()) / peak:.0f} %"]
        cells += [f"{100 * each.share(part):.1f} %" if part != 1 or each.generator else "" for part in (0, 1, 3)]
        cells += [PAPER.get(each.name, ""), *([change(larger[BASE] / larger[each.name])] if larger else [])]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"A step of `{BASE}` takes {base.arithmetic / 1e12:.3g} · 10¹² operations."


def change(factor: float) -> str:
    """A factor on the speed as what it adds or takes away, in per cent."""
    return f"{100 * (factor - 1):+.1f} %".replace("-", "−")
