"""What one GPU can hold: batches of 8,192 pairs, decoders with LoRA, and language models that write questions.

The part `sizes` of `gpu`. All weights are random and of the usual sizes, so it shows times and memory alone. `--tiny`
tries it without a GPU. Needs `pip install peft datasets accelerate`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from benchmarks import gpu_steps, retriever_sides
from benchmarks import objectives_speed as speed
from benchmarks.clock import Clock
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import write_as_measured
from benchmarks.run_steps import step
from benchmarks.training_examples import prepare_examples, read_examples
from benchmarks.training_sides import OURS, PEER, Setting, timed_training
from benchmarks.word_passages import word_blocks
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.text_generator import Sampling, TextGenerator
from stillhouse.pretraining.pairs.pair_loss import PairLoss

PAIRS, PART, RANK, ANSWER = 8192, 256, 16, 16
"""Pairs of a step, those encoded at once, the rank of LoRA, and the tokens of a written question."""
ENDS = {"vocab_size": speed.VOCABULARY, "bos_token_id": 101, "eos_token_id": 102, "pad_token_id": 0}
SMOL = {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536, "num_attention_heads": 9}
QWEN = {"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16}
FLAN = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "SmolLM2-135M": ("llama", SMOL | {"num_key_value_heads": 3}),
    "Qwen3-0.6B": ("qwen3", QWEN | {"num_key_value_heads": 8, "head_dim": 128}),
    "flan-t5-base": ("t5", FLAN),
}
FEW = {"num_hidden_layers": 2, "num_layers": 2}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_sizes", __doc__)
    parser.add_argument("--model", type=Path, required=True, help="whose tokenizer all models get")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args(argv)
    write_as_measured(report, arguments)
    return 0


def report(folder: Path, arguments: argparse.Namespace) -> Iterator[str]:
    clock, tiny = Clock(Context(folder, quiet=True).torch_device()), arguments.tiny
    yield from (
        "# What one GPU can hold",
        "",
        "Command: `python -m benchmarks gpu --folder build/gpu --only base sizes`.",
    )
    yield from ("", machine("torch", "transformers", "peft"), "", "All weights are random; memory is PyTorch's peak.")
    yield from ("", "| pairs a step, BERT-base | encoded at once | s | GiB |", "|---|---|---|---|")
    for pairs, part in ((8, 8), (16, 8)) if tiny else ((PART, PART), (PAIRS, PART)):
        seconds, memory = of_pairs(pairs, part, folder, clock, tiny)
        yield f"| {pairs:,} | {part:,} | {seconds:.2f} | {memory} |"
    yield from ("", f"Decoders with LoRA of rank {RANK}, 32 questions of squad-passages with a negative:", "")
    yield from ("| step | side | ms | ratio | waiting for data | GPU idle | padding |", "|---|---|---|---|---|---|---|")
    prepare_examples(folder, arguments.data / "squad-passages")
    for name in ("SmolLM2-135M", "Qwen3-0.6B"):
        yield from of_decoder(name, folder, arguments, clock)
    yield from ("", "| questions a second | tokens each | rate | GiB |", "|---|---|---|---|")
    for name in ("SmolLM2-135M", "flan-t5-base"):
        rate, memory = of_writer(name, folder, arguments, clock)
        yield f"| {name} | {ANSWER} | {rate:,.0f} | {memory} |"


def of_pairs(pairs: int, part: int, folder: Path, clock: Clock, tiny: bool) -> tuple[float, str]:
    """Seconds of a step of the pair tasks with the gradient cache, and memory."""
    size = replace(speed.TINY if tiny else speed.LARGE, batch=pairs, length=144)
    (entry,) = speed.open_entries([speed.PAIRS], size, clock)
    config = replace(entry.config, mini_batch_size=part, gradient_cache=True)
    loss = PairLoss(entry.module, entry.make, config, np.arange(1))  # type: ignore[arg-type]
    setting = Setting(folder, "bf16", 3, clock, folder)
    reset(clock)
    seconds, _ = timed_training(
        entry.module, lambda number: loss.training(loss.draw(np.arange(pairs), number), number), (), config, setting
    )
    return float(np.median(seconds)), held(clock)


def of_decoder(name: str, folder: Path, arguments: argparse.Namespace, clock: Clock) -> Iterator[str]:
    place = random_model(name, AutoModel, folder / f"{name} decoder", arguments)
    step("fetch-model", {}, {"encoder": folder / name}, model=str(place), query_length=64, passage_length=128)
    steps = argparse.Namespace(rounds=1 if arguments.tiny else 2, steps=2 if arguments.tiny else 5)
    examples = read_examples(folder, 2 if arguments.tiny else 32, (steps.rounds + 1) * steps.steps)
    setting, natural = Setting(folder / name, "bf16", steps.steps, clock, folder), retriever_sides.Lengths(128, False)
    sides = {
        OURS: retriever_sides.ours(setting, examples, natural, lora_rank=RANK),
        PEER: retriever_sides.theirs(setting, examples, natural, lora_rank=RANK),
    }
    yield from gpu_steps.rows(name, sides, steps, clock)


def of_writer(name: str, folder: Path, arguments: argparse.Namespace, clock: Clock) -> tuple[float, str]:
    """Questions a second, and memory."""
    auto = AutoModelForSeq2SeqLM if name == "flan-t5-base" else AutoModelForCausalLM
    generator = TextGenerator.load(random_model(name, auto, folder / f"{name} writer", arguments))
    texts = next(word_blocks(20 if arguments.tiny else 8000))[1]
    prompts = generator.prompts([("", text) for text in texts])
    sampling = Sampling(number=2, max_tokens=ANSWER, temperature=1.0, top_p=0.95, seed=0)
    config = InferenceConfig(precision="bf16")

    def write(count: int) -> None:
        for _ in generator.write(prompts[:count], sampling, config.batch_tokens, device):
            pass

    reset(clock)
    with generator.writing(config, Context(folder, quiet=True)) as device, torch.inference_mode():
        write(len(prompts) // 10)  # the first is not counted
        seconds = gpu_steps.timed(lambda: write(len(prompts)), clock)
    return sampling.number * len(prompts) / seconds, held(clock)


def random_model(name: str, auto: Any, folder: Path, arguments: argparse.Namespace) -> Path:
    kind, size = SHAPES[name]
    torch.manual_seed(0)
    few = {key: value for key, value in FEW.items() if key in size} if arguments.tiny else {}
    auto.from_config(AutoConfig.for_model(kind, **(ENDS | size | few))).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    tokenizer.bos_token, tokenizer.eos_token = tokenizer.cls_token, tokenizer.sep_token
    tokenizer.save_pretrained(folder)
    return folder


def reset(clock: Clock) -> None:
    if clock.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held(clock: Clock) -> str:
    return f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if clock.device.type == "cuda" else ""
