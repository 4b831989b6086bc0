"""Nothing that is read can execute: no `eval`, no pickles, no code from a hub, no shell, no archive that escapes."""

from __future__ import annotations

import ast
import inspect
import io
import json
import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.cli import main

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("stillhouse", "benchmarks", "images")
PROGRAM = re.compile(r"#!.*\bpython")
ARCHIVES = {"tarfile", "zipfile", "py7zr", "rarfile", "patoolib"}
"""Archives are never read, so that none can write outside its folder; gzip files hold only lines."""
FORBIDDEN = {
    "eval",
    "exec",
    "pickle",
    "cPickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "os.system",
    "os.popen",
} | ARCHIVES
"""Names that may not be called, and modules that may not be imported."""
MUST = {"torch.load": ("weights_only", True), "*.from_pretrained": ("trust_remote_code", False)}
"""Arguments that a call must have literally. Without the second, transformers asks on stdin and accepts a `y`."""
MAY_NOT = {"allow_pickle": True, "shell": True, "weights_only": False}
"""Arguments that may not have these values, whatever the call."""
ONLY = {"trust_remote_code": False}
"""Arguments that may only have this literal value. `SentenceTransformer` and `CrossEncoder` have them too."""
UNSAFE = {"yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all", "shutil.unpack_archive"}
LOADS = {"yaml.load", "yaml.load_all"}
"""May only be called with a loader of plain data."""
SAFE_LOADER = re.compile(r"yaml\.C?SafeLoader|getattr\(yaml, 'CSafeLoader', yaml\.SafeLoader\)")


def name_of(node: ast.AST) -> str:
    """Return `a.b.c` for a name or attribute, with `?` for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def sources() -> list[Path]:
    """Every Python source, including programs without a suffix."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    return [path for path in files if path.suffix == ".py" or (not path.suffix and is_program(path))]


def is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(PROGRAM.match(file.readline(100).decode(errors="replace")))


def loads_safely(call: ast.Call, tree: ast.AST) -> bool:
    """Whether the loader is safe, by its name or as the return value of a function in the same file."""
    given = [word.value for word in call.keywords if word.arg == "Loader"] + call.args[1:]
    chosen: list[ast.AST] = list(given)
    if len(given) == 1 and isinstance(given[0], ast.Call):
        made = [
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name_of(given[0].func)
        ]
        chosen = [
            one.value for each in made for one in ast.walk(each) if isinstance(one, ast.Return) and one.value
        ] or chosen
    return bool(chosen) and all(SAFE_LOADER.fullmatch(ast.unparse(one)) for one in chosen)


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (f"line {node.lineno}: imports {name}" for name in names if name.split(".")[0] in FORBIDDEN)
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            wrong = [name for name in names if name.split(".")[0] in FORBIDDEN or name in FORBIDDEN | UNSAFE | LOADS]
            yield from (f"line {node.lineno}: imports {name}" for name in wrong)
        if isinstance(node, ast.Dict):
            options = {key.value: value for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)}
            yield from (
                f"line {node.lineno}: {name!r} in a mapping"
                for name, value in ONLY.items()
                if name in options and ast.unparse(options[name]) != str(value)
            )
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node.func)
        given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        if called in FORBIDDEN | UNSAFE or called.rsplit(".", 1)[-1] == "extractall":
            yield f"line {node.lineno}: calls {called}"
        if called in LOADS and not loads_safely(node, tree):
            yield f"line {node.lineno}: {called} without a safe loader"
        for word in node.keywords:
            if word.arg in ONLY and ast.unparse(word.value) != str(ONLY[word.arg]):
                yield f"line {node.lineno}: {called}({ast.unparse(word)})"
        for argument, value in MAY_NOT.items():
            if argument in given and given[argument] is value:
                yield f"line {node.lineno}: {called}({argument}={value})"
        for rule in (called, f"*.{called.rsplit('.', 1)[-1]}"):
            if rule in MUST and given.get(MUST[rule][0]) is not MUST[rule][1]:
                yield f"line {node.lineno}: {called} without {MUST[rule][0]}={MUST[rule][1]}"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
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
        "yaml.load(text, Loader=yaml.FullLoader)",
        "yaml.load_all(text)",
        "yaml.load_all(text, yaml.Loader)",
        "yaml.load_all(text, Loader=_loader())",
        "def _loader():\n    return yaml.UnsafeLoader\nyaml.load_all(text, Loader=_loader())",
        "yaml.full_load_all(text)",
        "yaml.unsafe_load_all(text)",
        "from yaml import load_all",
        "SentenceTransformer(name, trust_remote_code=True)",
        "SentenceTransformer(name, trust_remote_code=trusted)",
        "CrossEncoder(name, trust_remote_code=1)",
        "CrossEncoder(name, model_kwargs={'trust_remote_code': True})",
        "tar.extractall(folder)",
        "import tarfile",
        "from zipfile import ZipFile",
        "from shutil import unpack_archive",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert list(dangers(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "yaml.load_all(text, Loader=yaml.CSafeLoader)",
        "def made():\n    return getattr(yaml, 'CSafeLoader', yaml.SafeLoader)\nyaml.load_all(text, Loader=made())",
        "SentenceTransformer(name, trust_remote_code=False)",
        "import gzip",
        "columns.extract(pattern)",
    ],
)
def test_the_search_accepts_safe_code(line: str) -> None:
    assert not list(dangers(ast.parse(line)))


def test_the_search_reads_every_folder_and_programs_without_a_suffix() -> None:
    found = {str(path.relative_to(ROOT)) for path in sources()}
    assert {
        "images/locks/audit",
        "images/checks/task.py",
        "stillhouse/pipelines/ir.py",
    } <= found and "images/build" not in found
    assert {name.split("/")[0] for name in found} == set(FOLDERS)


class Trap:
    """An object whose pickle makes a file when it is loaded."""

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


def test_the_peers_of_the_benchmarks_run_no_code_of_a_hub_unasked() -> None:
    """They are called without `trust_remote_code`, so its default must be known."""
    peers = pytest.importorskip("sentence_transformers", reason="the benchmarks' peers are not installed")
    for kind in (peers.SentenceTransformer, peers.CrossEncoder):
        assert inspect.signature(kind.__init__).parameters["trust_remote_code"].default is False


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
    """A model type of transformers is read by transformers' code, and any other is refused. No question is asked."""
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
    logged = capsys.readouterr()
    assert not sprung.exists() and not logged.out
    if kind == "bert":
        assert code == 0 and "trust_remote_code" not in (tmp_path / "encoder" / "tokenizer_config.json").read_text()
    else:
        assert code == 2 and not (tmp_path / "encoder").exists()
        [sentence] = logged.err.splitlines()
        assert str(folder / "config.json") in sentence and "custom code" in sentence
