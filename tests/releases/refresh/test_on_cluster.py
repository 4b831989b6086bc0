"""What refresh tasks report if a repository, branch, revision or credential is missing, or the disk is full."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from repositories import ACCEPTED, PATHS, call, candidate, commit_data, make_repository, write_stages

from stillhouse.core.artifacts import whole_folder, write_manifest, write_whole_json
from stillhouse.core.errors import InputError
from stillhouse.core.remote.git import Git
from stillhouse.kubeflow.pods.refresh import ASKED, RELEASED, run_check, run_plan
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import RECIPE
from stillhouse.kubeflow.pods.stage import write_recipe as write_for_tasks
from stillhouse.releases.promotion import Outcome, promote
from stillhouse.releases.refresh import on_cluster
from stillhouse.releases.refresh.on_cluster import Planned, write_summary
from stillhouse.releases.refresh.plan import Level, Parameters, Plan, write_recipe
from stillhouse.releases.refresh.run import Decision


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a repository with one release, and one with none."""
    folder = tmp_path_factory.mktemp("place")
    make_repository(folder / "empty", folder / "storage")
    commit_data(make_repository(folder / "articles", folder / "storage"), "corpus", {"a.md": "one"}, "A corpus")
    work = make_repository(folder / "work", folder / "storage")
    write_stages(work)
    outcome = promote(candidate(work), lambda against: {}, recorded=False)
    assert outcome.release and outcome.release.name == "v1.0.0"
    return folder


def asked(place: Path, **changes: Any) -> dict[str, Any]:
    values = {"releases": str(place / "work.git"), "repo": str(place / "articles"), "source": "corpus"}
    return vars(Parameters(**(values | changes)))


def checked(folder: Path, values: dict[str, Any]) -> SimpleNamespace:
    """Return what the first task hands on for these parameters and a recipe without settings."""
    write_for_tasks({}, folder / RECIPE)
    write_whole_json(folder / RECIPE / ASKED, values)
    return SimpleNamespace(path=str(folder / RECIPE))


def refused(capsys: pytest.CaptureFixture[str], call: Any, values: dict[str, Any], code: int = 2) -> str:
    """Run a task that must end with this exit code and no stack trace, and return its error output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        call(values)
    said = capsys.readouterr().err
    assert end.value.code == code and "Traceback" not in said
    return said


ABSENT: dict[str, tuple[dict[str, str], str, str]] = {
    "releases": ({"releases": "{place}/elsewhere.git"}, "cannot read the repository", "git_secret"),
    "first release": ({"releases": "{place}/empty.git"}, "nothing is released", "`stillhouse release promote`"),
    "revision": ({"revision": "v9"}, "has no revision 'v9'", "name a branch, tag or commit"),
    "path": ({"source": "corpora"}, "has no 'corpora'", "at its top level: "),
}


@pytest.mark.parametrize("case", ABSENT)
def test_the_first_task_reports_what_is_missing_and_the_remedy(
    case: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, what, remedy = ABSENT[case]
    values = asked(place, **{name: value.format(place=place) for name, value in changes.items()})
    said = refused(capsys, run_check, values | {TEXT: "{}", RECIPE: SimpleNamespace(path=str(tmp_path))})
    assert what in said and remedy in said


def arguments(place: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the arguments of the plan component, with the released corpus as the current corpus."""
    names = ("refreshed", "summary", RELEASED)
    outputs = {name: SimpleNamespace(path=str(folder / name), metadata={}) for name in names}
    recipe = checked(folder, asked(place, **changes))
    return outputs | {RECIPE: recipe, "corpus": ingested(folder, place / "work" / PATHS["corpus"])}


def ingested(folder: Path, corpus: Path, **facts: Any) -> SimpleNamespace:
    """Return the folder of the first stage with this corpus and its validation, which passes by default."""
    shutil.copytree(corpus, folder / "first" / "ingest" / "corpus")
    with whole_folder(folder / "first" / "validate" / "validation") as staging:
        write_manifest(staging, "validate", {}, {}, {"passed": True} | facts)
    return SimpleNamespace(path=str(folder / "first"))


def test_a_corpus_that_did_not_pass_is_not_compared(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = arguments(place, tmp_path)
    corpus = place / "work" / PATHS["corpus"]
    values["corpus"] = ingested(tmp_path / "bad", corpus, passed=False, failed=["passages"])
    said = refused(capsys, run_plan, values, code=3)
    assert "did not pass validation (passages)" in said and not (tmp_path / "refreshed").exists()


def test_a_release_that_lacks_what_a_level_starts_from_is_named(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = candidate(tmp_path / "other", passages=300)  # all but three are new
    corpus = ingested(tmp_path / "new", other.folder / PATHS["corpus"])
    values = arguments(place, tmp_path) | {"corpus": corpus}
    said = refused(capsys, run_plan, values)
    assert "v1.0.0 holds no encoder, which the level pretrain starts from" in said


SETTINGS = {"distilled": {"learning_rate": 0.001}}
EDITED = {"nothing": {}, "settings": {"params.yaml": yaml.safe_dump(SETTINGS)}, "stages": {"dvc.yaml": "stages: {}\n"}}
ALL = {"fine_tune_above": 1.0, "pretrain_above": 1.0}


def committed(place: Path, folder: Path, edit: str) -> Path:
    """Copy the repository of releases to `folder / "releases.git"`, and return a clone with an unpushed commit."""
    call(folder, "git", "clone", "--quiet", "--bare", str(place / "work.git"), "releases.git")
    call(folder, "git", "clone", "--quiet", "releases.git", "person")
    for name, text in EDITED[edit].items():
        (folder / "person" / name).write_text(text)
    call(folder / "person", "git", "commit", "--quiet", "--all", "--allow-empty", "--message", "By hand")
    return folder / "person"


@pytest.fixture
def edited(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> Path:
    """The repository of releases, with files that a person pushed after the release."""
    call(committed(place, tmp_path, request.param), "git", "push", "--quiet", "origin", "main")
    return tmp_path / "releases.git"


@pytest.mark.parametrize("edited", ["stages"], indirect=True)
def test_the_plan_reports_pushed_changes_that_would_be_overwritten(
    edited: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = candidate(tmp_path / "more", passages=4).folder / PATHS["corpus"]
    values = arguments(place, tmp_path, releases=str(edited), **ALL)
    assert run_plan(values) == "nothing", "where nothing is promoted nothing is overwritten"
    said = refused(capsys, run_plan, values | {"corpus": ingested(tmp_path / "new", more)})
    assert ".yaml changed on origin/main since" in said and "pipeline upload refresh --recipe params.yaml" in said


@pytest.mark.parametrize(
    ("edited", "recipe", "released"), [("settings", {}, False), ("settings", SETTINGS, True)], indirect=["edited"]
)
def test_a_promotion_overwrites_nothing_that_people_pushed(
    edited: Path, recipe: dict[str, Any], released: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People pushed before the task made its clone, which has their commit."""

    def release(git: Git, decision: Any, champion: Any, rules: Any, branch: str, base: str) -> Outcome:
        made = replace(candidate(git.folder, 4, "two"), base=base)
        return promote(made, lambda against: ACCEPTED, branch, recorded=False)

    monkeypatch.setattr(on_cluster, "release", release)
    monkeypatch.setattr(on_cluster, "decide", lambda *given: Decision(Plan(Level.INDEX, ""), ANY, "", ""))
    parameters = Parameters(**asked(place, releases=str(edited)))
    planned = Planned(Level.INDEX, "v1.0.0", "one text is new")
    before = call(edited, "git", "show", "main:params.yaml")
    if released:
        assert on_cluster.release_refresh(parameters, write_recipe(recipe), planned, {}).kind == "released"
        return
    with pytest.raises(InputError, match=r"yaml changed on origin/main since .*, which this was made from"):
        on_cluster.release_refresh(parameters, write_recipe(recipe), planned, {})
    assert call(edited, "git", "show", "main:params.yaml") == before
    assert "v1.1.0" not in call(edited, "git", "tag")


def test_the_outcome_is_written_as_a_page_and_a_file(tmp_path: Path) -> None:
    page = write_summary(
        tmp_path, Planned(Level.INDEX, "v1.0.0", "one text is new"), Outcome("refused", None, "it is worse")
    )
    assert page == "**index** on v1.0.0: one text is new\n\n**refused**: it is worse\n"
    assert (tmp_path / "refresh.md").read_text() == page
