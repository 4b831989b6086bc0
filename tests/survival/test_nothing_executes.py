"""Nothing that is read can execute: no `eval`, no pickles, no code of a hub's, no shell, no archive that escapes."""

from __future__ import annotations

import ast
import io
import json
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.cli import main

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path for folder in ("stillhouse", "components", "pipelines", "benchmarks") for path in (ROOT / folder).rglob("*.py")
]
FORBIDDEN = {"eval", "exec", "pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "os.system", "os.popen"}
"""Names that may not be called, and modules that may not be imported."""
MUST = {"torch.load": ("weights_only", True), "*.from_pretrained": ("trust_remote_code", False)}
"""Arguments that a call must have, word by word: without the second transformers asks on stdin and takes a `y`."""
MAY_NOT = {"trust_remote_code": True, "allow_pickle": True, "shell": True, "weights_only": False}
"""Arguments that may not have these values, whatever the call."""
UNSAFE = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "shutil.unpack_archive"}


def name_of(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, with `?` for what is neither."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"line {node.lineno}: imports {name}" for name in modules if name.split(".")[0] in FORBIDDEN)
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node.func)
        given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        if called in FORBIDDEN | UNSAFE or called.rsplit(".", 1)[-1] == "extractall":
            yield f"line {node.lineno}: calls {called}"
        for argument, value in MAY_NOT.items():
            if argument in given and given[argument] is value:
                yield f"line {node.lineno}: {called}({argument}={value})"
        for rule in (called, f"*.{called.rsplit('.', 1)[-1]}"):
            if rule in MUST and given.get(MUST[rule][0]) is not MUST[rule][1]:
                yield f"line {node.lineno}: {called} without {MUST[rule][0]}={MUST[rule][1]}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_calls_nothing_that_executes_data(path: Path) -> None:
    assert not list(dangers(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "line",
    [
        "eval('1')",
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained(name, trust_remote_code=None)",
        "kinds[0].from_pretrained(name, **options)",
        "subprocess.run(line, shell=True)",
        "yaml.load(text)",
        "tar.extractall(folder)",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert list(dangers(ast.parse(line)))


class Trap:
    """What a pickle of it does when it is loaded: makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_in_the_place_of_a_checkpoint_or_array_does_not_run(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    torch.save({"step": Trap(sprung)}, tmp_path / "checkpoint.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    np.save(tmp_path / "array.npy", np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "array.npy")
    assert not sprung.exists()


AUTO_MAP = {"AutoConfig": "trap.TrapConfig", "AutoModel": "trap.TrapModel", "AutoModelForMaskedLM": "trap.TrapModel"}
TRAP = "from pathlib import Path\nPath({sprung!r}).touch()\n"


@pytest.mark.parametrize("kind", ["trap", "bert"])
@pytest.mark.parametrize("answer", ["y\n", "", "n\n"])
def test_code_that_a_model_folder_brings_along_does_not_run(
    kind: str,
    answer: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A model of a kind that transformers has is read by its own code, any other is refused; nobody is asked."""
    sprung, folder = tmp_path / "sprung", shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "trap.py").write_text(TRAP.format(sprung=str(sprung)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": kind, "auto_map": AUTO_MAP}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": [None, "trap.TrapTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    words = [f"--model={folder}", f"--encoder={tmp_path / 'encoder'}", "--passage-length=32"]
    code = main(["fetch-model", *words])
    told = capsys.readouterr()
    assert not sprung.exists() and not told.out
    if kind == "bert":
        assert code == 0 and "trust_remote_code" not in (tmp_path / "encoder" / "tokenizer_config.json").read_text()
    else:
        assert code == 2 and not (tmp_path / "encoder").exists()
        [sentence] = told.err.splitlines()
        assert f"the model '{folder}' cannot be loaded" in sentence and "custom code" in sentence
