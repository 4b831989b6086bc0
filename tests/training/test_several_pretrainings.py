"""Three processes pre-train the same encoder as one, with every kind of objective: same curves and parameters.

Under torchrun, this file trains the `CASES` in several processes: `python FILE FOLDER INTO`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.config import build
from stillhouse.corpus.store import write_tables
from stillhouse.models.acceleration import processes
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP as IMPORTANCE
from stillhouse.pipeline.steps.pretrain import STEP, Config
from stillhouse.pipeline.steps.tokenize import STEP as TOKENIZE
from stillhouse.training import loop

SETTINGS: dict[str, Any] = {"gradient_accumulation_steps": 3, "batch_size": 8, "bucket_steps": None, "epochs": None}
SETTINGS |= {"eval_steps": 1, "heldout_fraction": 0.25, "learning_rate": 0.003, "max_length": 32, "max_steps": 4}
SETTINGS |= {"precision": "fp32", "signals": False}
"""One process computes the same parts as three: 3, 3 and 2 passages, each with its own masks and dropout."""
PAIRS = {"objective": "ict+bfs+wlp", "gradient_accumulation_steps": 1, "query_length": 16, "passage_length": 32}
PAIRS |= {"pair_normalize": True, "projection": 6, "temperature": 0.03, "mini_batch_size": 3, "towers": "separate"}
"""The pairs use cosines.

A constant that all passages share does not affect a loss over inner products, so biases would have no gradient.
"""
CASES: Mapping[str, Mapping[str, Any]] = {
    "a generator that learns": {"objective": "simlm_joint"},
    "a bag of words": {"objective": "bow"},
    "importance": {"objective": "cdmae_bow"},
    "importance and a generator": {"objective": "simlm_importance"},
    "two passages, and a process without any": {"objective": "simlm_joint", "batch_size": 2},
    "pairs": PAIRS,
    "pairs, cached": PAIRS | {"gradient_cache": True},
    "two pairs, and a process without any": PAIRS | {"gradient_cache": True, "batch_size": 2},
}
WORDS = ["red", "green", "blue", "bird", "fish", "tree", "sings", "swims", "grows", "one", "two", "three"]


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write tokens of 8 linked articles with 4 passages of different lengths, importance, and a masked-LM model."""
    folder = tmp_path_factory.mktemp("several")
    random = np.random.default_rng(0)
    sentences = [
        [" ".join(random.choice(WORDS, size=random.integers(2, 8))) for _ in range(random.integers(2, 4))]
        for _ in range(32)
    ]
    names = [f"a{number // 4}" for number in range(32)]
    passages = {
        "passage_id": [f"p{number}" for number in range(32)],
        "title": [""] * 32,
        "text": [" ".join(f"{sentence.capitalize()}." for sentence in each) for each in sentences],
        "article_id": names,
        "section": ["" if number % 4 < 2 else "more" for number in range(32)],
        "position": [number % 4 for number in range(32)],
    }
    links = {"source": [f"a{n}" for n in range(8)] * 2, "target": [f"a{(n + k) % 8}" for k in (1, 3) for n in range(8)]}
    with whole_folder(folder / "corpus") as staging:
        write_tables(staging, {"passages": passages, "links": links})
        write_manifest(staging, "ingest", {}, {}, {"passages": 32})
    (folder / "model").mkdir()
    AutoModelForMaskedLM.from_pretrained(tiny_model).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder / "model")
    inputs = {"corpus": folder / "corpus", "tokenizer": folder / "model"}
    execute(TOKENIZE, TOKENIZE.config(), inputs, {"tokens": folder / "tokens"})
    execute(IMPORTANCE, IMPORTANCE.config(), {"tokens": folder / "tokens"}, {"importance": folder / "importance"})
    return folder


def pretrain_all(folder: Path, into: Path) -> None:
    """Train every case and keep its last parameters, because the first ones may be the best on such a small corpus."""
    inputs = {"tokens": folder / "tokens", "importance": folder / "importance"}
    inputs |= {"init": folder / "model", "generator": folder / "model"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "best_row", lambda rows, metric: rows[-1])
        for number, case in enumerate(CASES.values()):
            outputs = {name: into / f"{number}" / name for name in ("encoder", "curves")}
            execute(STEP, build(Config, {**SETTINGS, **case}, "test"), inputs, outputs)


@pytest.mark.long
def test_three_processes_train_the_same_encoders_as_one(folder: Path, tmp_path: Path) -> None:
    """Losses agree to 1e-4 and parameters to 2e-5, except for key biases, whose gradient is only rounding error."""
    pretrain_all(folder, tmp_path / "alone")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STILLHOUSE_DEVICE": "cpu"}
    command = [sys.executable, *launch, __file__, str(folder), str(tmp_path / "shared")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    for number, name in enumerate(CASES):
        alone, shared = (tmp_path / which / f"{number}" for which in ("alone", "shared"))
        assert (shared / "encoder").is_dir(), f"{name}: {done.stdout}{done.stderr}"
        one, three = (pd.read_csv(made / "curves" / "curves.csv") for made in (alone, shared))
        assert len(one) == 5 and np.ptp(one["heldout_loss"]) > 1e-3, f"{name}: nothing was learned"
        np.testing.assert_allclose(three, one, rtol=0, atol=1e-4, err_msg=name)
        files = sorted(path.relative_to(alone) for path in alone.rglob("*.safetensors"))
        assert len(files) == (4 if "pairs" in name else 1), files
        for path in files:
            weights = load_file(shared / path)
            for tensor, values in load_file(alone / path).items():
                if not tensor.endswith("key.bias"):
                    what = f"{name}, {path}, {tensor}: "
                    torch.testing.assert_close(
                        weights[tensor], values, rtol=0, atol=2e-5, msg=lambda text, what=what: what + text
                    )


if __name__ == "__main__":
    processes.BUCKET = 1  # so that most gradients are sent during the backward pass
    pretrain_all(Path(sys.argv[1]), Path(sys.argv[2]))
