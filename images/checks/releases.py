"""Two releases with git alone, and two looks of the watcher: at a corpus that it knows, and at one that changed.

python releases.py WORK RELEASES ARTICLES
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stillhouse.core.remote.dvc_source import look_up
from stillhouse.core.remote.git import Git
from stillhouse.kubeflow.pipelines.schedules.file import Parameter, Watch
from stillhouse.kubeflow.pipelines.schedules.watch import look
from stillhouse.releases.tags import publish


class Started:
    """A cluster without runs that notes what it is asked to start."""

    def __init__(self) -> None:
        self.parameters: Mapping[str, Parameter] = {}

    def runs(self) -> list[Any]:
        return []

    def version_of(self, pipeline: str, version: str) -> Any:
        return SimpleNamespace(display_name=version, pipeline_spec=None)

    def start(
        self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter], service_account: str
    ) -> str:
        self.parameters = parameters
        return name


def check(work: Path, releases: str, articles: str) -> None:
    git = Git.of(work)
    source = look_up(articles, "", "corpus").plain()
    champion = None
    for number, corpus in (("1", source), ("2", source | {"digest": "another"})):
        entry = {"path": "artifacts/retriever", "digest": number}
        record = {"artifacts": {"retriever": entry}, "summary": f"retriever {number}", "source": corpus}
        champion = publish(git, record, "minor", "main", git.commit_of("HEAD"), champion)
        cluster = Started()
        watch = Watch(name="articles", pipeline="refresh", releases=releases, repo=articles, path="corpus")
        seen = look(watch, cluster)
        print(seen)
        assert seen.kind == ("unchanged" if corpus == source else "started"), seen
    assert cluster.parameters["revision"] == source["commit"]


if __name__ == "__main__":
    check(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
