"""Compiled pipelines as resources: as kfp itself would write them, named by their content, and on their overlay."""

# No `from __future__ import annotations` here: kfp reads the types of a signature as they stand.
from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl, kubernetes
from kfp.compiler.compiler_utils import KubernetesManifestOptions
from kfp.dsl.base_component import BaseComponent
from rendered_overlays import rendered

from pipelines import resources as module
from pipelines.resources import COMPILED, COMPONENT, render, resources, write
from stillhouse.errors import InputError


@dsl.component(base_image="stillhouse:0.1.0", install_kfp_package=False)
def work(text: str) -> str:
    return text


def pipeline(text: str = "ships", *, platform: bool = True) -> BaseComponent:
    @dsl.pipeline(name="small", description="A pipeline of one task.")
    def small(what: str = text) -> None:
        task = work(text=what)
        if platform:
            kubernetes.add_pod_label(task, "stillhouse.io/task", "work")

    return small


def compiled(folder: Path, text: str = "ships") -> Path:
    path = folder / "small.yaml"
    compiler.Compiler().compile(pipeline(text), str(path))
    return path


@pytest.mark.parametrize("platform", [True, False])
def test_they_are_what_kfp_writes(tmp_path: Path, platform: bool) -> None:
    small = pipeline(platform=platform)
    compiler.Compiler().compile(small, str(tmp_path / "small.yaml"))
    ours = resources(tmp_path / "small.yaml")
    version = ours[1]["metadata"]["name"]
    options = KubernetesManifestOptions("small", "small", version, version, include_pipeline_manifest=True)
    theirs = tmp_path / "kfp.yaml"
    compiler.Compiler().compile(
        small, str(theirs), kubernetes_manifest_format=True, kubernetes_manifest_options=options
    )
    assert ours == list(yaml.safe_load_all(theirs.read_text(encoding="utf-8")))
    assert ("platformSpec" in ours[1]["spec"]) == platform


def test_a_version_is_named_by_its_content(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    first = resources(path)[1]["metadata"]["name"]
    path.write_text(
        "# another comment\n" + yaml.safe_dump_all(yaml.safe_load_all(path.read_text(encoding="utf-8")), width=40),
        encoding="utf-8",
    )
    assert resources(path)[1]["metadata"]["name"] == first
    assert resources(compiled(tmp_path, "clocks"))[1]["metadata"]["name"] != first
    assert first.startswith("small-")


@pytest.mark.parametrize("text", ["", "kind: Pod\n", "pipelineInfo: {name: a}\n---\nplatforms: {}\n---\nmore: 1\n"])
def test_what_is_no_compiled_pipeline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="stillhouse pipeline compile"):
        resources(tmp_path / "wrong.yaml")


def test_what_the_cluster_would_refuse_is_refused_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.raises(InputError, match="more than the cluster takes"):
        resources(compiled(tmp_path))


def test_the_component_holds_the_rendered_files_and_no_others(tmp_path: Path) -> None:
    ir, component = tmp_path / "ir", tmp_path / "component"
    ir.mkdir()
    compiled(ir)
    assert [path.name for path in write(component, ir)] == ["small.yaml", "kustomization.yaml"]
    assert yaml.safe_load((component / "kustomization.yaml").read_text(encoding="utf-8"))["resources"] == ["small.yaml"]
    (ir / "small.yaml").unlink()
    write(component, ir)
    assert [path.name for path in component.iterdir()] == ["kustomization.yaml"]


def test_the_committed_resources_are_those_of_the_compiled_pipelines() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in COMPONENT.glob("*.yaml")}
    assert committed == render(), "run `make render`"


def test_the_gpu_overlay_has_every_compiled_pipeline_unchanged() -> None:
    versions = {one["spec"]["pipelineName"]: one for one in rendered("gpu") if one["kind"] == "PipelineVersion"}
    names = set()
    for path in COMPILED.glob("*.yaml"):
        [specification, *platform] = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        found = versions[specification["pipelineInfo"]["name"]]["spec"]
        assert found["pipelineSpec"] == specification
        assert [found["platformSpec"]] == platform if platform else "platformSpec" not in found
        names.add(specification["pipelineInfo"]["name"])
    assert names == versions.keys()
