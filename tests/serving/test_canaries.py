"""A release whose model ranks its own queries differently from its run is refused; the previous one still answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from serving_releases import PARTS, open_release, running
from test_swapped_releases import point, until

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.serving.release import average_overlap
from stillhouse.serving.source import FolderSource

Runs = Callable[[Path], Callable[..., dict[str, Path]]]


@pytest.fixture(scope="module")
def with_runs(two_releases: list[Path], tmp_path_factory: pytest.TempPathFactory, runs_of_steps: Runs) -> list[Path]:
    """The two releases, each with the run that `retrieve` makes of it."""
    made = []
    for number, release in enumerate(two_releases):
        folder = tmp_path_factory.mktemp(f"with_run{number}") / "release"
        shutil.copytree(release, folder)
        inputs = {name: folder / name for name in PARTS}
        run = runs_of_steps(folder.parent / "made")("retrieve", inputs, depth=12)["run"]
        shutil.copytree(run, folder / "run")
        made.append(folder)
    return made


def spoil(folder: Path, into: Path) -> Path:
    """Copy a release and reverse the rankings of its run, sealed as if `retrieve` had written it."""
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("run"))
    with whole_folder(into / "run") as staging:
        for split in ("dev", "test"):
            rankings: dict[str, list[list[str]]] = {}
            for line in (folder / "run" / f"{split}.trec").read_text().splitlines():
                rankings.setdefault(line.split()[0], []).append(line.split())
            lines = [
                " ".join([*before[:2], after[2], *before[3:]]) + "\n"
                for ranking in rankings.values()
                for before, after in zip(ranking, reversed(ranking))
            ]
            (staging / f"{split}.trec").write_text("".join(lines))
        write_manifest(staging, "retrieve", {}, read_manifest(folder / "run").inputs, {})
    return into


def test_a_release_answers_its_own_queries_as_its_run_does(with_runs: list[Path]) -> None:
    for folder in with_runs:
        about = open_release(FolderSource(folder)).about()
        assert about["canaries"]["queries"] == 6  # the test queries
        assert about["canaries"]["overlap"] > 0.99


def test_the_name_of_a_release_does_not_depend_on_its_run(two_releases: list[Path], with_runs: list[Path]) -> None:
    assert open_release(FolderSource(with_runs[0])).name == open_release(FolderSource(two_releases[0])).name


def test_a_release_that_fails_its_canaries_is_refused_and_the_old_one_answers(
    with_runs: list[Path], tmp_path: Path
) -> None:
    bad = spoil(with_runs[1], tmp_path / "bad")
    with pytest.raises(InputError, match="fails its canary queries"):
        open_release(FolderSource(bad))
    link = tmp_path / "in-use"
    point(link, with_runs[0])
    lines: list[str] = []
    with running(link, watch=0.02, lines=lines) as service:
        first = service.search(query="red bird")["release"]
        point(link, bad)
        until(lambda: service.client.get("/info").json()["refused"])
        assert "canary" in service.client.get("/info").json()["refused"]["reason"]
        assert any("canary" in line for line in lines)
        assert service.search(query="red bird")["release"] == first
        point(link, with_runs[1])
        until(lambda: service.search(query="red bird")["release"] != first)


def test_a_run_of_another_release_does_not_open(with_runs: list[Path], tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(with_runs[0], mixed, ignore=shutil.ignore_patterns("run"))
    shutil.copytree(with_runs[1] / "run", mixed / "run")
    with pytest.raises(InputError, match="made from another corpus"):
        open_release(FolderSource(mixed))


def test_overlap_counts_what_two_rankings_share_from_the_top() -> None:
    assert average_overlap("abcd", "abcd") == 1
    assert average_overlap("abcd", "wxyz") == 0
    assert average_overlap("abcd", "bacd") == pytest.approx((0 + 1 + 1 + 1) / 4)
    assert average_overlap("abcd", "abdc") == pytest.approx((1 + 1 + 2 / 3 + 1) / 4)
