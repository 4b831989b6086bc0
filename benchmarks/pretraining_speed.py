"""How fast each objective trains, beside what its arithmetic allows; writes pretraining_speed.md beside this script.

    python benchmarks/pretraining_speed.py             # 6 layers of width 384, 16 passages of 128 tokens: two CPU cores
    python benchmarks/pretraining_speed.py --gpu-size  # BERT-base, 64 passages of 512 tokens: 002 Table 4

All objectives train one encoder, in turns: a turn is a run of the project's own training loop over a few steps, the
first of which is not counted. In a round each objective has one turn, and its speed is divided by that of `mlm` in the
same round, so that other load on the machine meets all alike; the page has the median over rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from machine import machine
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForMaskedLM

from stillhouse.context import Context
from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.model import BottleneckPretraining, LossOptions
from stillhouse.pretraining.objectives import TABLE
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.settings import pair_tasks
from stillhouse.pretraining.pairs.structure import PassageStructure
from stillhouse.pretraining.pairs.task import open_pairs
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache
from stillhouse.training.loop import train
from stillhouse.training.precision import autocast, has_bf16

BASE, PAIRS = "mlm", "ict+bfs+wlp"
VOCABULARY, SENTENCE = 30_522, 24
SPECIALS = SpecialTokens(cls=101, sep=102, pad=0, mask=103, all=(0, 100, 101, 102, 103))
PAPER = {"auto_encoding": "−17 %", "auto_regression": "−20 %", "enhanced_decoding": "−68 %", "bow": "−1 %"}
"""002 Table 4, the change of training speed."""


class Clock:
    """Seconds, after everything that was started on the device is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


@dataclass
class TimedGenerator:
    """A generator that adds up the seconds of its forward passes and sampling."""

    generator: Generator
    clock: Clock
    seconds: float = 0.0

    def replace(self, *inputs: Any) -> tuple[list[Tensor], Tensor | None]:
        begun = self.clock()
        made = self.generator.replace(*inputs)
        self.seconds += self.clock() - begun
        return made


@dataclass
class Entry:
    """An objective under measurement. `turns`: a turn's seconds a step for data, generator, gradients and AdamW."""

    name: str
    module: nn.Module
    make: Callable[[NDArray[np.int64], np.random.Generator], Any]
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
    parser = argparse.ArgumentParser(description="How fast each objective trains.")
    parser.add_argument("--layers", type=int, help="layers of the encoder; 6")
    parser.add_argument("--width", type=int, help="width of the encoder, a multiple of 192; 384")
    parser.add_argument("--batch", type=int, help="passages a step; 16")
    parser.add_argument("--length", type=int, help="tokens of a batch's longest passage; 128")
    parser.add_argument("--rounds", type=int, default=9, help="turns that every objective has")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--gpu-size", action="store_true", help="the size of 002 Table 4: 12 × 768, batch 64 × 512")
    parser.add_argument("--objectives", nargs="+", help="these alone, and mlm")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"), help="where the results go")
    args = parser.parse_args(arguments)
    usual = {"layers": 12, "width": 768, "batch": 64, "length": 512}
    for name, value in (usual if args.gpu_size else {"layers": 6, "width": 384, "batch": 16, "length": 128}).items():
        setattr(args, name, getattr(args, name) or value)
    names = [objective.name for objective in TABLE] + [PAIRS]
    unknown = set(args.objectives or []) - set(names)
    if args.width % 192 or args.steps < 2 or args.rounds < 1 or unknown:
        parser.error("--width is a multiple of 192, --steps at least 2, --rounds at least 1, --objectives are of table")
    names = [name for name in names if name == BASE or not args.objectives or name in args.objectives]
    with TemporaryDirectory() as folder:
        context = Context(Path(folder), quiet=True)
        clock = Clock(context.torch_device())
        cache = random_passages(16, args.batch, args.length)
        encoder = BertForMaskedLM(bert(args)).to(clock.device)  # type: ignore[arg-type]
        entries = [entry(name, encoder, cache, args, clock) for name in names]
        for each in entries:
            each.arithmetic = arithmetic(each, np.arange(args.batch), clock.device)
        for turn in range(args.rounds):
            for each in entries:
                each.turns.append(measure(each, args, turn, context, clock))
                print(f"round {turn + 1}: {each.name} {each.turns[-1].sum():.3f} s a step", file=sys.stderr, flush=True)
    text = "\n".join(page(entries, args, sys.argv[1:] if arguments is None else list(arguments))) + "\n"
    notes = args.page.with_suffix(".notes.md")
    if notes.is_file():
        text += "\n" + notes.read_text(encoding="utf-8")
    args.page.write_text(text, encoding="utf-8")
    print(text)
    return 0


def random_passages(batches: int, batch: int, length: int) -> TokenCache:
    """Passages of random tokens, as batches of about equally long ones have them: 90 to 100 % of `length`.

    The first of each batch has the full length, so that all batches have one shape. Sentences have 24 tokens, articles
    four passages and links to two others.
    """
    rng = np.random.default_rng(0)
    lengths_N = rng.integers(int(0.9 * length), length + 1, batches * batch) - 2
    lengths_N[::batch] = length - 2
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N)])
    ids_T = rng.integers(1000, VOCABULARY, size=offsets[-1]).astype(np.int32)
    place_T = np.arange(len(ids_T)) - np.repeat(offsets[:-1], lengths_N)
    word_starts_T = (rng.random(len(ids_T)) < 0.75) | (place_T == 0)
    importance_T = rng.normal(5, 2, len(ids_T)).astype(np.float32)
    passages_N = np.arange(len(lengths_N), dtype=np.int32)
    articles = int(passages_N[-1]) // 4 + 1
    numbers = np.arange(articles, dtype=np.int32)
    links = np.concatenate([np.stack([numbers, (numbers + step) % articles], axis=1) for step in (1, 2)])
    structure = PassageStructure(
        place_T % SENTENCE == 0, np.zeros(len(lengths_N), np.int32), passages_N // 4, passages_N % 4 == 0, links
    )
    return TokenCache(ids_T, offsets, word_starts_T, SPECIALS, importance_T, structure)


def bert(args: argparse.Namespace) -> BertConfig:
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 64,
        intermediate_size=4 * args.width,
        max_position_embeddings=max(512, args.length),
    )


def entry(name: str, encoder: BertForMaskedLM, cache: TokenCache, args: argparse.Namespace, clock: Clock) -> Entry:
    """An objective on the encoder that all share; decoder and generator are its own."""
    # The rate is so low that turns leave the shared encoder about as it was.
    config = PretrainingConfig(
        objective=name, max_length=args.length, passage_length=args.length, learning_rate=1e-6, heldout_every=args.steps
    )
    torch.manual_seed(0)
    row = config.row()
    if row is None:
        make = open_pairs(
            cache, pair_tasks(name), config, heldout_fraction=0.1, heldout_limit=64, seed=0, device=clock.device
        )
        return Entry(name, PairPretraining(encoder, "cls", config, SPECIALS).to(clock.device), make, config, None)
    generator = None
    if row.needs_generator:
        model = ElectraForMaskedLM(electra(args))
        generator = TimedGenerator(Generator.of(model, SPECIALS, clock.device, row.generator != "frozen"), clock)
    learner = generator.generator.model if generator and generator.generator.learns else None
    module = BottleneckPretraining(encoder, row, "cls", options=LossOptions(), generator=learner).to(clock.device)
    corruptor = Corruptor(cache, VOCABULARY, row, config, clock.device, generator)  # type: ignore[arg-type]
    return Entry(name, module, corruptor, config, generator)


def electra(args: argparse.Namespace) -> ElectraConfig:
    """A generator of a third of the encoder's width, as ELECTRA-base has it beside BERT-base."""
    width = args.width // 3
    return ElectraConfig(
        vocab_size=VOCABULARY,
        embedding_size=args.width,
        hidden_size=width,
        num_hidden_layers=args.layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=max(512, args.length),
    )


def arithmetic(each: Entry, rows: NDArray[np.int64], device: torch.device) -> float:
    """Operations of the matrix products of a step, forward and backward, those of a generator included.

    Attention is counted as the products that it is made of: what fused kernels compute twice is not needed work, and
    the counter does not know the one for CPUs.
    """
    each.module.train()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        with autocast(each.config.precision, device):
            loss = each.module(each.make(rows, np.random.default_rng(0)))
        loss.backward()
    each.module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def measure(each: Entry, args: argparse.Namespace, turn: int, context: Context, clock: Clock) -> NDArray[np.float64]:
    """Seconds a step for data, generator, forward and backward, clip and AdamW; medians over the turn's steps."""
    times: list[tuple[float, float, float, float]] = []

    def batch_losses(step: int) -> Iterator[Tensor]:
        number = (turn * args.steps + step) % 16
        begun = clock()
        if each.generator:
            each.generator.seconds = 0.0
        inputs = each.make(np.arange(args.batch) + args.batch * number, np.random.default_rng([turn, step]))
        made = clock()
        yield each.module(inputs)
        times.append((begun, each.generator.seconds if each.generator else 0.0, made, clock()))

    ends: list[float] = []

    def heldout_loss() -> float:
        ends.append(clock())
        return 0.0

    with TemporaryDirectory(dir=context.work) as work:
        train(each.module, batch_losses, heldout_loss, args.steps, each.config, replace(context, work=Path(work)))
    each.module.zero_grad(set_to_none=True)
    begun_S, generator_S, made_S, learned_S = np.array(times).T
    done_S = np.append(begun_S[1:], ends[-1])
    parts = np.stack([made_S - begun_S - generator_S, generator_S, learned_S - made_S, done_S - learned_S])
    median: NDArray[np.float64] = np.median(parts[:, 1:], axis=1)
    return median


def page(entries: list[Entry], args: argparse.Namespace, arguments: Sequence[str]) -> Iterator[str]:
    """The lines of the results page."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    command = " ".join(["python benchmarks/pretraining_speed.py", *arguments])
    yield from ["# How fast each objective trains", "", f"Command: `{command}`.", ""]
    threads = f" {torch.get_num_threads()} threads." if device.type == "cpu" else ""
    yield f"{machine('numpy', 'torch', 'transformers')}{threads} Precision: {'bf16' if has_bf16(device) else 'fp32'}."
    yield ""
    yield (
        f"An encoder of {args.layers} layers × {args.width}, vocabulary {VOCABULARY:,}, {args.batch} passages of up to "
        f"{args.length} tokens a step, medians of {args.rounds} rounds of {args.steps - 1} steps. *To mlm* is the "
        "change of speed (± half the range of the middle half of the rounds), *002* that of its Table 4. *Arithmetic* "
        "are the counted operations of a step's matrix products, forward and backward, those of a generator included, "
        "as a multiple of `mlm`'s; *allowed* is the change of speed that follows from it, and *reached* the measured "
        "speed by that. Of a step's time, *data* is the wait for the batch and its masks, *generator* a generator's "
        "forward pass and sampling, *optimiser* clipping and AdamW, whose work is no matrix product. For pair tasks "
        f"a passage is a pair: a sentence of up to {SENTENCE} tokens beside it, and no language-model head."
    )
    yield ""
    yield "| objective | passages/s | to mlm | 002 | arithmetic | allowed | reached | data | generator | optimiser |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    base = entries[0]
    for each in entries:
        speed = base.seconds() / each.seconds()
        low, middle, high = np.percentile(speed, [25, 50, 75])
        more = each.arithmetic / base.arithmetic
        cells = [f"`{each.name}`", f"{args.batch / np.median(each.seconds()):.1f}"]
        cells += [f"{change(middle)} ± {50 * (high - low):.1f}", PAPER.get(each.name, "")]
        cells += [f"{more:.3f}", change(1 / more), f"{middle * more:.1%}".replace("%", " %")]
        cells += [f"{100 * each.share(part):.1f} %" if part != 1 or each.generator else "" for part in (0, 1, 3)]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"A step of `{BASE}` takes {base.arithmetic / 1e12:.3g} · 10¹² operations."


def change(factor: float) -> str:
    """A factor on the speed as what it adds or takes away, in per cent."""
    return f"{100 * (factor - 1):+.1f} %".replace("-", "−")


if __name__ == "__main__":
    sys.exit(main())
