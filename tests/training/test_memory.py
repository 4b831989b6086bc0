"""The memory that a training is said to take, against what a process takes for one step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = """
import json, resource, sys
import torch
from transformers import AutoConfig, AutoModel
from families import DECODERS, SMALL, tokenizer
from stillhouse.models.encoder import BiEncoder
from stillhouse.training.low_rank import checkpointed, low_rank
from stillhouse.training.memory import expected_memory
from stillhouse.training.settings import RetrieverConfig

folder, kind, config = sys.argv[1], sys.argv[2], RetrieverConfig(**json.loads(sys.argv[3]))
sizes = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=8, num_attention_heads=4, vocab_size=20000)
heads = dict(num_key_value_heads=2, head_dim=64) if kind in DECODERS else {}
AutoModel.from_config(AutoConfig.for_model(kind, **(SMALL | heads | sizes))).save_pretrained(folder)
tokenizer(after="</s>" if kind in DECODERS else "").save_pretrained(folder)
encoder, cpu = BiEncoder.load(folder, query_length=16, passage_length=96), torch.device("cpu")
queries, passages = encoder.queries(["who hears mice"] * 16), encoder.passages(["the red bird sings in " * 30] * 32)
with low_rank(encoder, config.lora_rank, config.frozen_weights):
    expected = expected_memory(encoder, queries, passages, config, cpu)
    lower = torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16")
    with checkpointed(encoder, config.gradient_checkpointing), lower:
        trained = [weight for weight in encoder.parameters() if weight.requires_grad]
        before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
        best = [weight.detach().clone() for weight in trained]
        vectors = [encoder(*texts.batch(range(len(texts)), cpu), texts.role) for texts in (queries, passages)]
        (vectors[0] @ vectors[1].T).logsumexp(1).mean().backward()
        torch.optim.AdamW(trained).step()
# Not `ru_maxrss`, which a process takes over from the one that began it.
peak = 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([expected, peak - before]))
"""
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""With these, glibc gives memory back when it is freed, so that the peak is what is needed."""


@pytest.mark.parametrize(
    ("kind", "settings", "factor"),
    [
        ("bert", {"precision": "fp32"}, 1.5),
        ("llama", {"precision": "bf16", "lora_rank": 4, "frozen_weights": "bf16"}, 1.5),
        # So little is kept that pages of the system count.
        ("llama", {"precision": "fp32", "lora_rank": 4, "gradient_checkpointing": True}, 4.0),
    ],
)
def test_the_expected_memory_is_about_what_a_step_takes(
    kind: str, settings: dict[str, object], factor: float, tmp_path: Path
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", STEP, str(tmp_path / "model"), kind, json.dumps(settings)],
        capture_output=True,
        text=True,
        env=os.environ | MAPPED | {"PYTHONPATH": os.pathsep.join(["..", ".", *sys.path])},
        cwd=Path(__file__).parents[1],
        check=True,
    )
    expected, taken = json.loads(run.stdout.splitlines()[-1])
    said = sum(expected.values()) - expected["weights"]  # which are read before
    assert 1 / 1.5 < taken / said < factor
