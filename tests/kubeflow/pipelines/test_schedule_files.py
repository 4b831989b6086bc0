"""The file of schedules: what is refused before any request to the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.file import read_schedules
from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_parameters

BAD = {
    "five fields": ({"schedules": {"a": {"pipeline": "p", "cron": "0 3 * * *"}}}, "put the seconds first"),
    "no cron": ({"schedules": {"a": {"pipeline": "p"}}}, "schedules: a lacks cron"),
    "misspelt": ({"schedules": {"a": {"pipelin": "p", "cron": "0 0 3 * * *"}}}, "did you mean 'pipeline'"),
    "part": ({"schedule": {}}, "unknown setting 'schedule'; did you mean 'schedules'"),
    "name": (
        {"schedules": {"Nightly!": {"pipeline": "p", "cron": "0 0 3 * * *"}}},
        "lowercase letters, digits and dashes",
    ),
    "number": ({"schedules": {"a": {"pipeline": "p", "cron": "0 0 3 * * *", "version": 2}}}, "version must be text"),
    "watched": (
        {
            "watches": {
                "a": {"pipeline": "p", "releases": "r", "repo": "r", "path": "x", "parameters": {"revision": "1"}}
            }
        },
        "the parameter 'revision' is set by the watch itself",
    ),
    "token": (
        {"watches": {"a": {"pipeline": "p", "releases": "https://bob:hush@host/r", "repo": "r", "path": "x"}}},
        "watches: a: releases holds a password or token",
    ),
    "token of a parameter": (
        {
            "schedules": {
                "a": {"pipeline": "p", "cron": "0 0 3 * * *", "parameters": {"releases": "https://hush@host/r"}}
            }
        },
        "schedules: a: the parameter 'releases' holds a password or token",
    ),
    "no attempt": (
        {"watches": {"a": {"pipeline": "p", "releases": "r", "repo": "r", "path": "x", "attempts": 0}}},
        "watches: a: attempts must be from 1 to 10, not 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_before_any_request(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[case]
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump(content))
    for action in ("apply", "watch"):
        assert cli.main(["schedule", action, str(tmp_path / "schedules.yaml")]) == 2
        said = capsys.readouterr().err
        assert message in said and "hush" not in said


WRONG_PARAMETERS = {
    "unknown": ({"releases": "r", "fine_tune_abov": 0.1}, "schedule a: pipeline refresh has no parameter"),
    "range": ({"releases": "r", "alpha": 2.0}, "schedule a: pipeline refresh.alpha must be from 0 to 1"),
    "missing": ({"alpha": 0.1}, "schedule a: .*releases is empty"),
    "type": ({"releases": "r", "again": "yes"}, "again must be true or false"),
    "pod": ({"releases": "r", "accelerator_count": "two"}, "accelerator_count is 'two'"),
    "image": ({"releases": "r", "image": "registry.example/stillhouse:latest"}, "not named by its digest"),
}


@pytest.mark.parametrize("case", WRONG_PARAMETERS)
def test_parameters_that_a_run_would_refuse_are_refused_here(case: str, tmp_path: Path) -> None:
    parameters, message = WRONG_PARAMETERS[case]
    path = tmp_path / "schedules.yaml"
    entry = {"pipeline": "refresh", "cron": "0 0 3 * * *", "parameters": parameters}
    path.write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    with pytest.raises(InputError, match=message):
        refuse_parameters(read_schedules(path))


def test_settings_of_any_recipe_are_left_to_the_run(tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    entry = {"pipeline": "train", "cron": "0 0 3 * * *", "parameters": {"settings": '{"averaged": {"alphas": [0.5]}}'}}
    path.write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    refuse_parameters(read_schedules(path))


def test_an_account_is_that_of_the_file_or_of_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    entry = {"pipeline": "p", "cron": "0 0 3 * * *"}
    watch = {"pipeline": "p", "releases": "r", "repo": "r", "path": "x"}
    content = {
        "schedules": {"a": entry, "b": entry | {"service_account": "b"}, "c": entry | {"service_account": ""}},
        "watches": {"d": watch, "e": watch | {"service_account": "e"}},
    }
    for account in ("", "steps"):
        path.write_text(yaml.safe_dump(content | ({"service_account": account} if account else {})))
        found = read_schedules(path)
        assert [one.service_account for one in found.schedules.values()] == [account, "b", ""]
        assert [one.service_account for one in (found.watches or {}).values()] == [account, "e"]


def test_the_file_of_the_docs_is_read(tmp_path: Path) -> None:
    """It names an account, and an image in each entry, because a cluster with the manifests needs both."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "releases.md").read_text()
    [text] = [part for part in page.split("```yaml\n")[1:] if part.startswith("experiment:")]
    path = tmp_path / "schedules.yaml"
    path.write_text(text.split("```")[0].replace("sha256:…", "sha256:" + "0" * 64))
    found = read_schedules(path)
    assert found.schedules and found.watches
    refuse_parameters(found)
    for entry in (*found.schedules.values(), *found.watches.values()):
        assert entry.service_account == "stillhouse-steps" and "image" in entry.parameters
