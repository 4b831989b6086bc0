"""Step `adopt-index`: ties an older retriever's index to a newer one, if it ranks the dev queries well enough."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step

if TYPE_CHECKING:
    from stillhouse.core.artifacts import Manifest

ADOPTED = "adopted"
"""The fact of an adopted index with what was measured."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """When to refuse an index."""

    least_ratio: float = setting(
        0.99,
        "the lowest dev nDCG@10 of the new retriever in the old index, as a share of the old retriever's",
        minimum=0,
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import copy_content, read_manifest
    from stillhouse.core.errors import InputError
    from stillhouse.pipeline.steps.execute import refuse_other_model

    refuse_other_model(STEP, inputs, "old_index", "old_retriever")
    found, wanted = (
        dev_ndcg(inputs["corpus"], inputs[retriever], inputs["old_index"], context)
        for retriever in ("retriever", "old_retriever")
    )
    ratio = found / wanted if wanted else 1.0
    said = f"dev nDCG@10 of the new queries in the old index is {found:.3f}, {ratio:.1%} of the {wanted:.3f} of the old"
    if ratio < config.least_ratio:
        raise InputError(
            f"adopt-index: {said}, less than least_ratio = {config.least_ratio:g}; run `stillhouse index` with this "
            "retriever, or train it with compatibility_weight"
        )
    copy_content(inputs["old_index"], outputs["index"])
    old = read_manifest(inputs["old_index"], verify=False).facts
    measured = {"ratio": ratio, "ndcg10": found, "reference_ndcg10": wanted}
    return Report(said, metrics={"ratio": ratio}, facts=old | {ADOPTED: measured})


def adopted_index(index: Manifest) -> dict[str, Any] | None:
    """The digests of the older index that `adopt-index` took over and of its retriever, and what it measured on dev.

    None for an index that was not adopted. The facts of a copy have the digests, since its inputs are others.
    """
    if ADOPTED not in index.facts:
        return None
    return {name: index.inputs.get(name) for name in ("old_index", "old_retriever")} | index.facts[ADOPTED]


def dev_ndcg(corpus_folder: Path, retriever: Path, index: Path, context: Context) -> float:
    """nDCG@10 of the dev queries of the corpus, by a retriever in an index."""
    import torch

    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.dense import check_width, open_index
    from stillhouse.training.query_training import DevRanking

    corpus, encoder = Corpus.open(corpus_folder), BiEncoder.load(retriever)
    opened = open_index(index, corpus)
    check_width(encoder, opened)
    device = context.torch_device()
    encoder.to(device).eval()
    with torch.no_grad():
        return float(DevRanking(encoder, opened, corpus, 0, 0).measured(device)["nDCG@10"].mean())


STEP = Step(
    "adopt-index",
    "reuses an older retriever's index for a newer one, if it still ranks well on the dev queries",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the newer bi-encoder", kind="model"),
        Port("old_index", "the older bi-encoder's index of the corpus", agrees_on=("corpus",)),
        Port("old_retriever", "the older bi-encoder", kind="model"),
    ),
    outputs=(Port("index", "the old index, for the newer bi-encoder"),),
    run=run,
)
