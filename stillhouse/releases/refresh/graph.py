"""What a release holds, and the steps on every level of a refresh.

The champion's released artifacts lie in `artifacts/champion/<name>`, as if a step of that name had made them. Steps
that a whole run does not have take the settings of the step that they replace. Like a run, a refresh ends in a choice
(`select-best`): a newly trained retriever replaces the champion's only if the dev queries show it to be better, and
BM25 is fused with the winner again.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from stillhouse.corpus.words import whole_words
from stillhouse.pipeline.graph import CORPUS, GATE, LEXICAL, GraphStep
from stillhouse.pipeline.graph_steps import Stage, needed, step_of
from stillhouse.releases.refresh.plan import Level

CHAMPION = "champion"
OWN = f"{CHAMPION}/retriever"
CHOSEN = {"retriever": "best/retriever", "index": "best/index", "hybrid": "best/hybrid", "run": "best_run/run"}
STARTS = {"encoder": "pretraining/encoder", "reranker": "reranker/reranker", "generator": "fetch_generator/encoder"}
"""The artifacts that later refreshes start from, if the recipe's run produces them."""
CHALLENGER = "challenger"
"""The stage of a refresh that runs the steps of its level."""


def before(whole: Collection[GraphStep]) -> tuple[GraphStep, ...]:
    """The steps that run before the level is known: a whole run's `ingest`, its inputs, and the validation."""
    return (*needed(whole, ["ingest"]), GraphStep("validate", "validate", CORPUS, stage="corpus"))


def with_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of every step, with an estimated `max_passage_words` in place of null.

    A refresh validates before it has a model, whose tokenizer would say which passages are truncated.
    """
    own = settings["validate"]
    words = own.max_passage_words or whole_words(settings["fetch_model"].passage_length)
    return {**settings, "validate": replace(own, max_passage_words=words)}


def _index(system: str, retriever: str) -> GraphStep:
    return GraphStep(f"{system}_index", "index", CORPUS | GATE | {"retriever": retriever}, "distilled_index")


def released_of(whole: Collection[GraphStep]) -> dict[str, str]:
    """What a release of a whole run holds: name -> `step/output`."""
    made = {step.name for step in whole}
    return {"corpus": "ingest/corpus"} | CHOSEN | {name: of for name, of in STARTS.items() if step_of(of) in made}


def _run(system: str, retrievers: Mapping[str, str]) -> tuple[GraphStep, GraphStep]:
    """The run of a system: the best of `retrievers`, by the names of their indexes, with BM25 if that is better."""
    compared = {f"candidates/{name}": retriever for name, retriever in retrievers.items()}
    compared |= {f"indexes/{name}": f"{name}_index/index" for name in retrievers}
    chosen = {port: f"{system}_best/{port}" for port in ("retriever", "index", "hybrid")}
    return (
        GraphStep(f"{system}_best", "select-best", CORPUS | {"bm25": "bm25/bm25"} | compared, "best"),
        GraphStep(f"{system}_run", "retrieve", CORPUS | chosen, "best_run"),
    )


@dataclass(frozen=True)
class Levels:
    """The levels for a champion that holds `released` and a recipe whose own run has the steps `whole`."""

    whole: Collection[GraphStep]
    released: Collection[str]

    @classmethod
    def of(cls, whole: Collection[GraphStep]) -> Self:
        """The levels for a release of the recipe's whole run."""
        return cls(whole, tuple(released_of(whole)))

    def steps_of(self, level: Level) -> tuple[GraphStep, ...]:
        """The steps of a level that follow those of `before`, inputs first."""
        if level == Level.NOTHING:
            return ()
        if level == Level.INDEX:
            return (LEXICAL, _index("challenger", OWN), *_run("challenger", {"challenger": OWN}))
        pretraining = self._pretraining() if level == Level.PRETRAIN else ()
        return (
            LEXICAL,
            _index(CHAMPION, OWN),
            *_run(CHAMPION, {CHAMPION: OWN}),
            *pretraining,
            *self._training("refreshed_pretraining/encoder" if pretraining else OWN),
            _index("challenger", "challenger/retriever"),
            *_run("challenger", {CHAMPION: OWN, "challenger": "challenger/retriever"}),
        )

    def every_stage(self) -> Stage:
        """The stage of all levels together, one of which a run performs, on Kubeflow in one pod."""
        return Stage(CHALLENGER, tuple(step for level in Level for step in self.steps_of(level)))

    def _pretraining(self) -> tuple[GraphStep, ...]:
        """Pre-training that continues from the champion's encoder."""
        encoder = f"{CHAMPION}/encoder"
        start = {"init": encoder}
        if "generator" in self.released:
            start["generator"] = f"{CHAMPION}/generator"
        tokens = {"tokens": "tokenize/tokens", "importance": "importance/importance"}
        return (
            GraphStep("tokenize", "tokenize", CORPUS | GATE | {"tokenizer": encoder}),
            GraphStep("importance", "importance", {"tokens": "tokenize/tokens"}),
            GraphStep("refreshed_pretraining", "pretrain", tokens | start, "pretraining"),
        )

    def _training(self, start: str) -> Iterator[GraphStep]:
        """Mines the champion's hard negatives, scores them with the recipe's teacher, and trains on both.

        If the recipe distils what another training made, that training comes first here too: it learns the new labels
        even if the teacher turns out too weak to learn from. Where the recipe lets only the average compete, the
        challenger is an average too, with what training started from.
        """
        encoder, searched = start, {"retriever": OWN, "index": f"{CHAMPION}_index/index"}
        yield GraphStep("refreshed_negatives", "mine", CORPUS | searched | {"others": "bm25/negatives"}, "mine_2")
        learned = {"negatives": "refreshed_negatives/negatives"}
        trainings = {step.name: step for step in self.whole if step.kind == "train-retriever"}
        distilled = trainings.get("distilled")
        if distilled and (earlier := trainings.get(step_of(distilled.inputs["encoder"]))):
            first = CORPUS | {"encoder": encoder} | learned
            yield GraphStep("refreshed_retriever", "train-retriever", first, earlier.section)
            encoder = "refreshed_retriever/retriever"
        if teacher := self._teacher(searched):
            yield GraphStep("refreshed_teacher", "score-pairs", CORPUS | learned | teacher, "teacher")
            learned["teacher"] = "refreshed_teacher/teacher"
        competing = {name for step in self.whole if step.kind == "select-best" for name in step.read_from}
        averages = {"distilled", "averaged"} & competing == {"averaged"}
        name = "refreshed_distilled" if averages else "challenger"
        yield GraphStep(name, "train-retriever", CORPUS | {"encoder": encoder} | learned, "distilled")
        if averages:
            ends = {"start": start, "trained": f"{name}/retriever", "negatives": learned["negatives"]}
            yield GraphStep("challenger", "average", CORPUS | ends, "averaged")

    def _teacher(self, searched: Mapping[str, str]) -> dict[str, str]:
        """The inputs of the recipe's teacher; empty if only its re-ranker may teach and the champion has none."""
        asked = next((step.inputs for step in self.whole if step.name == "teacher"), {})
        found = {"bm25": "bm25/bm25", **searched}
        if "reranker" in self.released:
            found["reranker"] = f"{CHAMPION}/reranker"
        found = {port: source for port, source in found.items() if port in asked}
        return found if {"reranker", "bm25"} & found.keys() else {}

    def released_by(self, level: Level) -> dict[str, str]:
        """Where a level leaves what it releases, name -> `step/output`. What it does not make stays the champion's."""
        places = {name: f"{CHAMPION}/{name}" for name in self.released if name != "hybrid"}
        places |= {"corpus": "ingest/corpus", "run": "challenger_run/run"}
        places |= {port: f"challenger_best/{port}" for port in ("retriever", "index", "hybrid")}
        if level == Level.PRETRAIN:
            places["encoder"] = "refreshed_pretraining/encoder"
        return places


def runs_of(level: Level) -> dict[str, str]:
    """The runs to compare; on the level `index` both come from one retriever and one index."""
    champion = "challenger_run/run" if level == Level.INDEX else f"{CHAMPION}_run/run"
    return {"champion": champion, "challenger": "challenger_run/run"}
