"""The commands for a cluster, as far as they work without one: overlays are rendered, secrets are made but not sent."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import ROOT, blocks, every_command, section
from gateway_stand_in import Gateway
from kubeflow_server import DIGEST
from rendered_overlays import EVERY_OVERLAY, OVERLAYS, SERVING, Resource, program, render, rendered
from terminal import Terminal

from stillhouse.kubeflow.pipelines.schedules.watch import report_schedule

FILES = ("deploy_key", "known_hosts", "data_key", "key.json")
"""The user's own files that the commands read."""


class Kubectl:
    """Renders what would be applied or deleted, and makes secrets as `kubectl` does, without a server."""

    def __init__(self) -> None:
        self.secrets: dict[str, set[str]] = {}
        self.rendered: list[list[str]] = []

    def __call__(self, words: list[str]) -> int:
        if "-k" in words:
            assert words[0] in ("apply", "delete"), words
            assert words[0] == "delete" or "apply" not in words[1:]
            self.rendered.append(sorted({resource["kind"] for resource in render(Path(words[-1]))}))
            return 0
        assert words[2:5] == ["create", "secret", "generic"], words
        done = subprocess.run(
            [program("kubectl"), *words, "--dry-run=client", "-o", "yaml"], capture_output=True, text=True, check=True
        )
        made = yaml.safe_load(done.stdout)
        self.secrets[made["metadata"]["name"]] = set(made["data"])
        return 0


@pytest.fixture
def kubectl() -> Kubectl:
    program("kubectl")
    return Kubectl()


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubectl: Kubectl) -> Terminal:
    """A terminal in a folder with the pages' overlays, the manifests and the files of the secrets."""
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    for block in blocks("docs/deploy.md", "yaml"):
        name = block.splitlines()[0].removeprefix("# ")
        if name.endswith("/kustomization.yaml"):
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(block.replace("sha256:…", DIGEST))
    [schedules] = blocks("docs/releases.md", "yaml")
    (tmp_path / "my-cluster" / "schedules.yaml").write_text(schedules)
    for name in FILES:
        (tmp_path / name).write_text("content")
    return Terminal(tmp_path, monkeypatch, programs={"kubectl": kubectl})


def keys_that_pods_read() -> dict[str, set[str]]:
    """The keys of each secret that become variables, in the pods of the overlays and of the placements."""
    found: dict[str, set[str]] = {}

    def note(value: Any) -> None:
        if isinstance(value, dict):
            if "secretKeyRef" in value:
                found.setdefault(value["secretKeyRef"]["name"], set()).add(value["secretKeyRef"]["key"])
            if "role" in value and isinstance(value.get("keys"), dict):
                found.setdefault(value["name"], set()).update(value["keys"])
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            note(part)

    for overlay in EVERY_OVERLAY:
        note(rendered(overlay))
    for path in sorted((ROOT / "stillhouse" / "kubeflow" / "pipelines" / "placements").glob("*.yaml")):
        note(yaml.safe_load(path.read_text()))
    return found


def test_overlays_of_the_page_are_rendered(terminal: Terminal, kubectl: Kubectl) -> None:
    for heading in ("3. Install", "A search service"):
        terminal.type_all(section("docs/deploy.md", heading))
    assert len(kubectl.rendered) == 3
    installed, removed = kubectl.rendered[:2]
    assert installed == removed and {"Pipeline", "ClusterQueue", "CronJob"} <= set(installed)
    assert {"Deployment", "HorizontalPodAutoscaler"} <= set(kubectl.rendered[2])


def test_secrets_have_the_keys_that_pods_read(terminal: Terminal, kubectl: Kubectl) -> None:
    terminal.type_all(section("docs/deploy.md", "Secrets"))
    terminal.type_all(section("docs/deploy.md", "A search service", having="secret"))
    read = keys_that_pods_read()
    of_files = {"stillhouse-git", "stillhouse-ssh", "stillhouse-gcs"}
    assert set(kubectl.secrets) == set(read) | of_files
    for name in read:
        assert kubectl.secrets[name] == read[name], name
    assert kubectl.secrets["stillhouse-git"] == {"id", "known_hosts"}


def test_patches_of_the_page_apply_to_the_overlay(tmp_path: Path) -> None:
    """The page's patches for a user's own overlay remove the pipelines and add another type of accelerator."""
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    made: list[tuple[Resource, ...]] = []
    for number, block in enumerate(block for block in blocks("docs/deploy.md", "yaml") if block.startswith("patches")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "kustomization.yaml").write_text("resources: [../manifests/overlays/gpu]\n" + block)
        made.append(render(folder))
    without, queue = made
    assert not {"Pipeline", "PipelineVersion"} & {resource["kind"] for resource in without}
    [cluster_queue] = [resource for resource in queue if resource["kind"] == "ClusterQueue"]
    assert "nvidia.com/mig-1g.10gb" in cluster_queue["spec"]["resourceGroups"][0]["coveredResources"]
    [quota] = [one for one in queue if one["kind"] == "ResourceQuota" and one["metadata"]["name"] == "stillhouse"]
    assert quota["spec"]["hard"]["requests.nvidia.com/mig-1g.10gb"] == "7"


def test_names_in_commands_for_a_cluster_are_those_of_the_manifests() -> None:
    """Only a cluster can run these commands, but the manifests install what they name."""
    text = "\n".join(command.text for command in every_command() if "kubectl" in command.text)
    assert "cronjob/stillhouse-watcher" in text and "stillhouse.io/search=allowed" in text
    for overlay in OVERLAYS:
        watchers = [one for one in rendered(overlay) if one["kind"] == "CronJob"]
        assert [one["metadata"]["name"] for one in watchers] == ["stillhouse-watcher"]
    for overlay in SERVING:
        policies = [one for one in rendered(overlay) if one["kind"] == "NetworkPolicy"]
        assert "'stillhouse.io/search': 'allowed'" in str(policies), overlay


def test_the_metrics_of_a_watch_are_deleted_where_they_were_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    monkeypatch.setenv("STILLHOUSE_PUSHGATEWAY", gateway.url)
    report_schedule("NAME", 3600.0, True, False, print)
    terminal = Terminal(tmp_path, monkeypatch, {"http://stillhouse-pushgateway:9091": gateway.url})
    terminal.type_all(section("docs/deploy.md", "Metrics and alerts"))
    (pushed, pushed_path, _), (deleted, deleted_path, _) = gateway.pushes
    assert (deleted, pushed_path) == ("DELETE", deleted_path) and pushed in ("PUT", "POST")
