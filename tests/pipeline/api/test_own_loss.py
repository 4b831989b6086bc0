"""A loss that is handed in from outside trains as the built-in one does, and the manifest names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stillhouse
from stillhouse.core.artifacts import digest_file, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.training.losses import LossBatch

SHORT: dict[str, Any] = {"max_steps": 3, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 6}
PARTS = {"mini_batch_size": 2, "gradient_cache": True, "matryoshka_dims": [16]}


def softmax(batch: LossBatch) -> Tensor:
    """The loss of `contrastive="plain"` with a temperature of 0.05, as PyTorch's cross-entropy."""
    scores_BM = batch.queries_BD @ batch.passages_MD.T / 0.05
    other_BM = ~batch.negative_BM
    other_BM[torch.arange(len(other_BM)), batch.positive_B] = False
    return torch.nn.functional.cross_entropy(scores_BM.masked_fill(other_BM, -torch.inf), batch.positive_B)


def hinge(batch: LossBatch) -> Tensor:
    scores_BM = batch.queries_BD @ batch.passages_MD.T
    right_B1 = scores_BM.gather(1, batch.positive_B[:, None])
    return ((0.2 + scores_BM - right_B1).clamp(min=0) * batch.negative_BM).sum(dim=1).mean()


@pytest.fixture
def trained(small_corpus: Path, tiny_model: Path, tmp_path: Path) -> Any:
    negatives = stillhouse.bm25(small_corpus, tmp_path / "bm25", negatives_depth=6).negatives

    def train(name: str, **settings: Any) -> stillhouse.StepResult:
        return stillhouse.train_retriever(small_corpus, tiny_model, negatives, tmp_path / name, **SHORT, **settings)

    return train


@pytest.mark.parametrize("parts", [{}, PARTS], ids=["whole batches", "in parts and widths"])
def test_the_built_in_loss_handed_in_trains_the_same_retriever(trained: Any, parts: dict[str, Any]) -> None:
    ours = trained("ours", contrastive="plain", temperature=0.05, **parts)
    own = trained("own", loss=softmax, **parts)
    weights = [stillhouse.BiEncoder.load(result).state_dict() for result in (ours, own)]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, atol=1e-5, rtol=1e-4)


def test_another_loss_trains_another_retriever_and_the_manifest_names_it(trained: Any) -> None:
    one, other = trained("softmax", loss=softmax), trained("hinge", loss=hinge)
    assert digest_file(one.folder / "model.safetensors") != digest_file(other.folder / "model.safetensors")
    for result, name in ((one, "softmax"), (other, "hinge")):
        named, digest = str(read_manifest(result.folder).config["loss"]).split()
        assert named.endswith(f"test_own_loss.{name}") and len(digest) == 12


def test_a_loss_of_several_numbers_is_refused(trained: Any) -> None:
    with pytest.raises(InputError, match=r"the loss gives numbers of shape \[\d\]; let it give one"):
        trained("several", loss=lambda batch: batch.queries_BD.sum(dim=1))
