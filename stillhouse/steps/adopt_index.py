"""Step `adopt-index`: ties an older retriever's index to a newer one, if dev queries rank as well in it."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """When an index is refused."""

    least_ratio: float = setting(
        0.99,
        "the lowest dev nDCG@10 of the new retriever in the old index, as a share of that in its own (--own-index) or "
        "else of the old retriever's",
        minimum=0,
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import shutil

    from stillhouse.artifacts import MANIFEST
    from stillhouse.errors import InputError
    from stillhouse.steps.execute import manifest_of

    old = manifest_of(inputs["old_index"], "data")
    for port, index in (("old_retriever", "old_index"), ("retriever", "own_index")):
        made_by = manifest_of(inputs[index], "data").inputs.get("retriever") if index in inputs else None
        if index in inputs and made_by != manifest_of(inputs[port], "model").digest:
            flags = f"--{index.replace('_', '-')} was made by another model than --{port.replace('_', '-')}"
            raise InputError(f"adopt-index: {flags}; give the model that made it")
    reference = "own_index" if "own_index" in inputs else "old_retriever"
    found = dev_ndcg(inputs, "retriever", "old_index", context)
    whole = "retriever" if reference == "own_index" else "old_retriever"
    wanted = dev_ndcg(inputs, whole, "own_index" if reference == "own_index" else "old_index", context)
    ratio = found / wanted if wanted else 1.0
    said = f"dev nDCG@10 of the new queries in the old index is {found:.3f}, {ratio:.1%} of the {wanted:.3f} of "
    said += "their own index" if reference == "own_index" else "the old queries"
    if ratio < config.least_ratio:
        raise InputError(
            f"adopt-index: {said}, less than least_ratio = {config.least_ratio:g}; run `stillhouse index` with this "
            "retriever, or train it with compatibility_weight"
        )
    ignored = shutil.ignore_patterns(MANIFEST)
    shutil.copytree(inputs["old_index"], outputs["index"], ignore=ignored, dirs_exist_ok=True)
    measured = {"ratio": ratio, "ndcg10": found, "reference_ndcg10": wanted, "reference": reference}
    return Report(said, metrics={"ratio": ratio}, facts=dict(old.facts) | {"adopted": measured})


def dev_ndcg(inputs: Paths, retriever: str, index: str, context: Context) -> float:
    """nDCG@10 of the dev queries of the corpus, by a retriever in an index of the inputs."""
    import torch

    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.fine_tuning.query_training import DevRanking
    from stillhouse.retrieval.index.vector_index import VectorIndex
    from stillhouse.retrieval.models.encoder import BiEncoder
    from stillhouse.retrieval.search.dense import check_index, check_width

    corpus, encoder, opened = (
        Corpus.open(inputs["corpus"]),
        BiEncoder.load(inputs[retriever]),
        VectorIndex(inputs[index]),
    )
    check_index(opened, corpus)
    check_width(encoder, opened)
    device = context.torch_device()
    encoder.to(device).eval()
    with torch.no_grad():
        return float(DevRanking(encoder, opened, corpus, 0, 0).measured(device)["nDCG@10"].mean())


STEP = Step(
    "adopt-index",
    "reuses an older retriever's index for a newer one, if dev queries still rank well",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the newer bi-encoder", kind="model"),
        Port("old_index", "the older bi-encoder's index of the corpus", agrees_on=("corpus",)),
        Port("old_retriever", "the older bi-encoder", kind="model"),
        Port("own_index", "the newer bi-encoder's own index, to compare with", optional=True, agrees_on=("corpus",)),
    ),
    outputs=(Port("index", "the old index, for the newer bi-encoder"),),
    run=run,
)
