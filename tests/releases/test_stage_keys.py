"""The key of a component's stage in DVC's run cache equals that of the workspace's stage, for each use of the graph."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stillhouse.artifacts import write_json
from stillhouse.config import build
from stillhouse.environment import describe_environment
from stillhouse.kubernetes.pods.cached_step import open_run_cache, pinned_down, settings_of
from stillhouse.workflow.dvc_file import ENVIRONMENT
from stillhouse.workflow.graph import ARTIFACTS, find_uses
from stillhouse.workflow.recipes import load_recipe
from stillhouse.workflow.workspace import make_workspace

USES = find_uses()
INGEST = USES["ingest"].step
COMMIT = "0123456789" * 4


def test_stage_keys_equal_those_that_dvc_computes(tmp_path: Path) -> None:
    """DVC itself computes the expected keys, with one file per folder. YAML readers differ on a number of a recipe."""
    from dvc.repo import Repo
    from dvc.stage.cache import _get_stage_hash

    folder = tmp_path / "workspace"
    make_workspace(folder, None, "bow-msmarco")
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("retriever_1:", "retriever_1:\n  warmup_ratio: 1e-1", 1))
    recipe = load_recipe(folder / "params.yaml")
    assert recipe["retriever_1"]["warmup_ratio"] == "1e-1", "text for this reader of YAML, a number for DVC's"
    for use in USES.values():
        for path in use.output_paths(folder / ARTIFACTS).values():
            path.mkdir(parents=True)
            (path / "file").write_text(str(path.relative_to(folder)))
    write_json(folder / ENVIRONMENT, describe_environment())
    expected = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with Repo(".") as repo, repo.lock:
            for name in searched():
                [stage] = repo.stage.collect(name)
                stage.save_deps()
                expected[name] = _get_stage_hash(stage)
    found = {}
    for name in searched():
        use = USES[name]
        section = settings_of(build(use.step.config, recipe[name], name), recipe[name])
        inputs = use.input_paths(folder / ARTIFACTS)
        (tmp_path / name).mkdir()
        found[name] = open_run_cache(tmp_path / name, str(tmp_path / "shelf"), use, section, inputs).key()
    assert found == expected
    assert len(set(found.values())) == len(found)


def searched() -> list[str]:
    """Return the uses that check the run cache whatever their settings."""
    return [name for name, use in USES.items() if use.inputs]


PLACES = {
    "a folder": ({"source": "/volume/articles"}, False),
    "a name": ({"source": "sample"}, False),
    "a branch": ({"repo": "https://git.example/a.git", "source": "corpus", "revision": "main"}, False),
    "no revision": ({"repo": "https://git.example/a.git", "source": "corpus"}, False),
    "a short commit": ({"repo": "https://git.example/a.git", "source": "corpus", "revision": COMMIT[:10]}, False),
    "a commit": ({"repo": "https://git.example/a.git", "source": "corpus", "revision": COMMIT}, True),
    "another place": ({"repo": "r", "source": "corpus", "revision": COMMIT, "test_queries": "/volume/queries"}, False),
}


@pytest.mark.parametrize("case", PLACES)
def test_only_sources_that_cannot_change_are_pinned(case: str) -> None:
    settings, pinned = PLACES[case]
    assert pinned_down(INGEST, dataclasses.replace(INGEST.config(), **settings)) is pinned


def test_a_model_name_is_not_pinned_to_its_content() -> None:
    step = USES["fetch_model"].step
    assert not pinned_down(step, step.config())
    assert pinned_down(USES["tokenize"].step, USES["tokenize"].step.config())
