"""The rung `query_only`, run by the command: it is kept if it is enough on dev; otherwise the retriever is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_repositories import LIGHT, Source, first_release, weights

from stillhouse.artifacts import read_manifest
from stillhouse.releases.git import Git
from stillhouse.releases.refresh.plan import Rung, Thresholds
from stillhouse.releases.refresh.run import Request, refresh
from stillhouse.releases.tags import read_history
from stillhouse.retrieval.fine_tuning import query_training
from stillhouse.training import loop

pytestmark = pytest.mark.long

RULES = {"most_loss": 1.0, "alpha": 0.0}
TOWER = {"max_steps": 2, "batch_size": 8, "learning_rate": 0.001}


def test_labels_that_changed_train_the_query_tower_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "volume"))
    source = Source(tmp_path / "source", tmp_path / "source-shelf")
    work = first_release(tmp_path / "work", source, tmp_path / "shelf", LIGHT, query_tower=TOWER)
    made = tmp_path / "refreshed" / "artifacts"

    def again(revision: str, gain: float) -> tuple[Rung, str]:
        request = Request(
            str(tmp_path / "work.git"),
            tmp_path / "refreshed",
            source={"revision": revision},
            thresholds=Thresholds(query_only_gain=gain),
            rules=RULES,
        )
        found = refresh(request)
        assert found.outcome and found.outcome.kind == "released", found.sentence
        return found.plan.rung, found.plan.reason

    # Two steps of a tiny model gain nothing, so the retriever is trained, as it would be without the rung.
    rung, reason = again(source.drop_query(), 0.02)
    assert rung == Rung.FINE_TUNE and "the query tower alone gains" in reason
    assert read_history(Git.of(work)).champion.name == "v1.1.0"
    assert read_manifest(made / "challenger" / "retriever").step == "train-retriever"

    # If dev shows that it is enough, the passages keep their vectors and nothing else is trained.
    # `after_queries` decides, which test_plan.py covers; this test covers what follows.
    monkeypatch.setattr("stillhouse.releases.refresh.run.after_queries", lambda planned, *found: planned)
    for module in (loop, query_training):
        monkeypatch.setattr(module, "best_row", lambda rows, metric: rows[-1])
    rung, _ = again(source.drop_query(), 0.0)
    assert rung == Rung.QUERY_ONLY
    release = read_history(Git.of(work)).champion
    assert release.name == "v1.2.0" and release.record["rung"] == "query_only"
    held = {name: release.record["artifacts"][name]["digest"] for name in ("retriever", "index")}
    assert held == {name: read_manifest(made / "challenger_best" / name).digest for name in held}
    was, now = weights(made / "champion" / "retriever"), weights(made / "query_tower" / "retriever")
    assert was["model.safetensors"] == now["model.safetensors"] and now.keys() > was.keys()
