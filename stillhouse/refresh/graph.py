"""The uses of steps on every rung of a refresh, and where each rung leaves what it releases.

The released artifacts of the champion lie in `artifacts/champion/<name>`, as if a use of that name had made them. Uses
that the whole run does not have take the settings of the one that they stand in for.
"""

from __future__ import annotations

from collections.abc import Collection

from stillhouse.graph import CORPUS, GATE, Use
from stillhouse.refresh.plan import Rung

CHAMPION = "champion"
FULL = {
    "corpus": "ingest/corpus",
    "retriever": "distilled/retriever",
    "index": "distilled_index/index",
    "run": "distilled_run/run",
    "encoder": "pretraining/encoder",
    "reranker": "reranker/reranker",
    "generator": "fetch_generator/encoder",
}
"""What a release holds, and which use and output of a whole run it is."""
NEEDED = {
    Rung.INDEX: ("corpus", "retriever"),
    Rung.FINE_TUNE: ("corpus", "retriever"),
    Rung.PRETRAIN: ("corpus", "retriever", "encoder"),
}
"""What a rung cannot do without."""

BEFORE = (Use("ingest", "ingest"), Use("validate", "validate", CORPUS))
"""What comes before the rung is known."""


def _dense(system: str, retriever: str) -> tuple[Use, Use]:
    index = Use(f"{system}_index", "index", CORPUS | GATE | {"retriever": retriever}, "distilled_index")
    inputs = CORPUS | {"retriever": retriever, "index": f"{system}_index/index"}
    return index, Use(f"{system}_run", "retrieve", inputs, "distilled_run")


def uses_of(rung: Rung, released: Collection[str] = tuple(FULL)) -> tuple[Use, ...]:
    """The uses of a rung after `BEFORE`. `released` are the champion's artifacts; without a re-ranker none distils."""
    own = f"{CHAMPION}/retriever"
    if rung == Rung.NOTHING:
        return ()
    if rung == Rung.INDEX:
        return _dense("challenger", own)
    encoder, before = own, list(_dense(CHAMPION, own))
    if rung == Rung.PRETRAIN:
        encoder = "refreshed_pretraining/encoder"
        start = {"init": f"{CHAMPION}/encoder"}
        if "generator" in released:
            start["generator"] = f"{CHAMPION}/generator"
        before += [
            Use("tokenize", "tokenize", CORPUS | GATE | {"tokenizer": f"{CHAMPION}/encoder"}),
            Use("importance", "importance", {"tokens": "tokenize/tokens", "tokenizer": f"{CHAMPION}/encoder"}),
            Use(
                "refreshed_pretraining",
                "pretrain",
                {"tokens": "tokenize/tokens", "importance": "importance/importance"} | start,
                "pretraining",
            ),
        ]
    negatives = {"negatives": "refreshed_negatives/negatives"}
    mined = {"retriever": own, "index": f"{CHAMPION}_index/index", "others": "lexical/negatives"}
    before += [
        Use("lexical", "lexical", CORPUS | GATE),
        Use("refreshed_negatives", "mine", CORPUS | mined, "mine_2"),
    ]
    teacher = {}
    if "reranker" in released:
        reranker = {"reranker": f"{CHAMPION}/reranker"}
        before.append(Use("refreshed_teacher", "score", CORPUS | negatives | reranker, "teacher"))
        teacher = {"teacher": "refreshed_teacher/teacher"}
    trained = Use("challenger", "train-retriever", CORPUS | {"encoder": encoder} | negatives | teacher, "distilled")
    return (*before, trained, *_dense("challenger", "challenger/retriever"))


def released_by(rung: Rung, released: Collection[str] = tuple(FULL)) -> dict[str, str]:
    """Where a rung leaves what it releases: name -> `use/output`. What it does not make stays the champion's."""
    places = {name: f"{CHAMPION}/{name}" for name in released}
    places |= {"corpus": "ingest/corpus", "index": "challenger_index/index", "run": "challenger_run/run"}
    if rung in (Rung.FINE_TUNE, Rung.PRETRAIN):
        places["retriever"] = "challenger/retriever"
    if rung == Rung.PRETRAIN:
        places["encoder"] = "refreshed_pretraining/encoder"
    return places


def runs_of(rung: Rung) -> dict[str, str]:
    """The runs that are compared; on the rung `index` both are of one retriever, and of one index."""
    champion = "challenger_run/run" if rung == Rung.INDEX else f"{CHAMPION}_run/run"
    return {"champion": champion, "challenger": "challenger_run/run"}
