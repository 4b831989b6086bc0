"""The whole run as data: every use of a step and where its inputs come from.

`dvc.yaml` and the Kubeflow pipeline are both made from this table, so they cannot drift apart. The name of a use is its
section in `params.yaml`, its DVC stage and its Kubeflow task; its outputs lie in `artifacts/<use>/<output>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.steps.registry import find_step
from stillhouse.steps.spec import Step

ARTIFACTS = Path("artifacts")


@dataclass(frozen=True)
class Use:
    """One use of a step. `inputs` maps the key of an input (a port, or `port/NAME` where a port takes many) to
    `use/output` of an earlier use.

    Its settings are the recipe's section of its own name, or another use's that it names as `settings_of`.
    """

    name: str
    step_name: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings_of: str = ""

    @property
    def section(self) -> str:
        return self.settings_of or self.name

    @property
    def step(self) -> Step:
        return find_step(self.step_name)

    def input_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port: root / source for port, source in self.inputs.items()}

    def output_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port.name: root / self.name / port.name for port in self.step.outputs}


CORPUS = {"corpus": "ingest/corpus"}
GATE = {"validation": "validate/validation"}


def _dense(system: str, retriever: str) -> tuple[Use, Use]:
    """The index and the run of one retriever."""
    index = Use(f"{system}_index", "index", CORPUS | GATE | {"retriever": retriever})
    inputs = CORPUS | {"retriever": retriever, "index": f"{system}_index/index"}
    return index, Use(f"{system}_run", "retrieve", inputs)


def _mine(name: str, system: str) -> Use:
    inputs = {"retriever": f"{system}/retriever", "index": f"{system}_index/index"}
    return Use(name, "mine", CORPUS | inputs | {"others": "lexical/negatives"})


def _evaluate(runs: Mapping[str, str], trainings: Iterable[str]) -> Use:
    """The evaluation of runs, by the names of systems, with the loss curves of trainings."""
    curves = {f"curves/{training}": f"{training}/curves" for training in trainings}
    return Use("evaluate", "evaluate", CORPUS | {f"run/{system}": run for system, run in runs.items()} | curves)


BM25 = CORPUS | {"negatives": "lexical/negatives"}
PRETRAINED = {"encoder": "pretraining/encoder"}

USES: tuple[Use, ...] = (
    Use("fetch_model", "fetch-model"),
    Use("fetch_generator", "fetch-model"),
    Use("fetch_reranker", "fetch-model"),
    Use("ingest", "ingest"),
    Use("validate", "validate", CORPUS),
    Use("tokenize", "tokenize", CORPUS | GATE | {"tokenizer": "fetch_model/encoder"}),
    Use("importance", "importance", {"tokens": "tokenize/tokens", "tokenizer": "fetch_model/encoder"}),
    Use("lm_head", "pretrain", {"tokens": "tokenize/tokens", "init": "fetch_model/encoder"}),
    Use(
        "pretraining",
        "pretrain",
        {
            "tokens": "tokenize/tokens",
            "importance": "importance/importance",
            "init": "lm_head/encoder",
            "generator": "fetch_generator/encoder",
        },
    ),
    Use("lexical", "lexical", CORPUS | GATE),
    *_dense("zero_shot", "fetch_model/encoder"),
    Use("retriever_1_unpretrained", "train-retriever", BM25 | {"encoder": "fetch_model/encoder"}),
    *_dense("retriever_1_unpretrained", "retriever_1_unpretrained/retriever"),
    Use("retriever_1", "train-retriever", BM25 | PRETRAINED),
    *_dense("retriever_1", "retriever_1/retriever"),
    _mine("mine_1", "retriever_1"),
    Use("retriever_2", "train-retriever", CORPUS | PRETRAINED | {"negatives": "mine_1/negatives"}),
    *_dense("retriever_2", "retriever_2/retriever"),
    _mine("mine_2", "retriever_2"),
    Use(
        "reranker",
        "train-reranker",
        CORPUS | {"negatives": "mine_2/negatives", "init": "fetch_reranker/encoder", "encoder": "fetch_model/encoder"},
    ),
    Use("teacher", "score", CORPUS | {"negatives": "mine_2/negatives", "reranker": "reranker/reranker"}),
    Use(
        "distilled",
        "train-retriever",
        CORPUS | PRETRAINED | {"negatives": "mine_2/negatives", "teacher": "teacher/teacher"},
    ),
    *_dense("distilled", "distilled/retriever"),
    Use(
        "reranked_run",
        "rerank",
        CORPUS | {"candidates": "retriever_2_run/run", "reranker": "reranker/reranker"},
    ),
    _evaluate(
        {
            "bm25": "lexical/run",
            "zero_shot": "zero_shot_run/run",
            "retriever_1_unpretrained": "retriever_1_unpretrained_run/run",
            "retriever_1": "retriever_1_run/run",
            "retriever_2": "retriever_2_run/run",
            "reranked": "reranked_run/run",
            "distilled": "distilled_run/run",
        },
        (
            "lm_head",
            "pretraining",
            "retriever_1_unpretrained",
            "retriever_1",
            "retriever_2",
            "reranker",
            "distilled",
        ),
    ),
)

APART: tuple[Use, ...] = (
    Use("count", "count", {"tokens": "tokenize/tokens"}),
    Use("average", "average", BM25 | {"start": "pretraining/encoder", "trained": "retriever_1/retriever"}),
    Use("encode", "encode", CORPUS | GATE | {"retriever": "distilled/retriever"}),
    Use("judge", "judge", CORPUS | {"champion": "champion_run/run", "challenger": "distilled_run/run"}),
)
"""Uses of steps that a whole run has no need of: examples for the command line."""


def find_uses() -> dict[str, Use]:
    return {use.name: use for use in USES}


def needed(uses: Iterable[Use], targets: Iterable[str]) -> list[Use]:
    """The uses that `targets` depend on, themselves included, in the order of `uses`."""
    uses = list(uses)
    wanted = set(targets)
    for use in reversed(uses):
        if use.name in wanted:
            wanted |= {source.split("/")[0] for source in use.inputs.values()}
    return [use for use in uses if use.name in wanted]
