"""Kubeflow's form for each pipeline has few fields, in order, and its picture in the documentation is up to date."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.run_parameters import TRAIN
from stillhouse.pipelines.catalog import Request
from stillhouse.pipelines.ir import Compiled, compile_small
from stillhouse.pipelines.placement_table import find_table, read_table
from stillhouse.pipelines.run_form import DIGEST, form_digest, form_page, parameters_of, specs_of

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "forms"
SPECS = specs_of(ROOT / "manifests" / "pipelines")


@pytest.fixture(scope="module")
def train() -> Compiled:
    return compile_small(Request("train", "simlm-msmarco").build(find_table("gpu")))


def fields(spec: Any) -> dict[str, str | None]:
    return {name: default for name, _, default in parameters_of(spec)}


def test_train_has_at_most_twelve_fields(train: Compiled) -> None:
    """The pipeline with GPUs and a recipe that pre-trains has the most fields."""
    assert len(fields(train.spec)) <= 12
    assert {"source", "model", "image", "accelerator_type"} <= fields(train.spec).keys()


def test_the_form_omits_claims_and_secrets(train: Compiled) -> None:
    assert not [name for name in fields(train.spec) if name.endswith(("_claim", "_secret"))]
    text = str(train.platforms)
    assert "'constant': 'stillhouse-shared'" in text and "'constant': 'stillhouse-data'" in text


def test_required_fields_have_no_default() -> None:
    """Kubeflow accepts an empty default as a value, and would start the run."""
    spec = compile_small(Request("refresh", "simlm").build(find_table("cpu"))).spec
    assert [name for name, default in fields(spec).items() if default is None] == ["releases"]


def test_the_version_describes_every_field_common_ones_first(train: Compiled) -> None:
    logged = re.findall(r"^- `(\w+)`: (.+)\.$", train.description, re.MULTILINE)
    assert [name for name, _ in logged][: len(TRAIN)] == list(TRAIN) and logged[0][0] == "source"
    assert {name for name, _ in logged} == fields(train.spec).keys()
    assert "`" not in train.summary and "\n" not in train.summary


def test_the_page_has_the_fields_as_kubeflow_sorts_and_labels_them() -> None:
    parameters = {
        "b": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3.0, "isOptional": True},
        "c": {"parameterType": "STRING"},
        "a": {"parameterType": "BOOLEAN", "defaultValue": False, "isOptional": True},
        "d": {"parameterType": "STRING", "defaultValue": "<x>", "isOptional": True},
    }
    page = form_page({"pipelineInfo": {"name": "p"}, "root": {"inputDefinitions": {"parameters": parameters}}})
    found = re.findall(r"<label>(.*?)</label><div>(.*?)</div>(<p>)?", page)
    assert [(label, unescape(value), bool(missing)) for label, value, missing in found] == [
        ("a - boolean", "false", False),
        ("b - integer", "3", False),
        ("c - string", "", True),
        ("d - string", "<x>", False),
    ]


def test_a_custom_table_chooses_the_fields_of_the_form(tmp_path: Path) -> None:
    text = "kinds: {default: {claims: [{parameter: work_claim, name: mine, path: /volume}], "
    text += "secrets: [{parameter: data_secret, name: ours, path: /data}]}}\n"
    for form, open_ones in (
        ("", {"work_claim", "data_secret"}),
        ("form: []", set()),
        ("form: [work_claim]", {"work_claim"}),
    ):
        (tmp_path / "mine.yaml").write_text(text + form)
        assert read_table(tmp_path / "mine.yaml").parameters.keys() == open_ones, form
    for form, message in (("form: [work_clam]", "did you mean 'work_claim'"), ("form: work_claim", "must be a list")):
        (tmp_path / "mine.yaml").write_text(text + form)
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", SPECS)
def test_the_pictures_are_of_the_compiled_pipelines(name: str) -> None:
    """`make forms` draws them again."""
    path = PICTURES / f"{name}.png"
    assert Image.open(path).info[DIGEST] == form_digest(SPECS[name])
    assert path.stat().st_size < 100_000
    assert f"forms/{name}.png" in (ROOT / "docs" / "kubeflow.md").read_text(encoding="utf-8")
