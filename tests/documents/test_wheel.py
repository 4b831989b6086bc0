"""The wheel alone, with what it requires and nothing else, outside a clone: README's first commands, and extras."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml
from documented_commands import ROOT, section
from packaging.requirements import Requirement
from ports import free_port, wait_for
from small_workspaces import shrink, write_corpus

from stillhouse.kubeflow.pipelines import image


def required(names: list[str]) -> set[str]:
    """Return the installed distributions that these need, by their own requirements."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        if one.name in found or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(one.name)
        waiting += map(Requirement, distribution(one.name).requires or [])
    return found


@pytest.fixture(scope="module")
def bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and links to the packages that it requires."""
    root = tmp_path_factory.mktemp("wheel")
    (root / "source").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / "source")
    for name in ("stillhouse", "examples"):
        shutil.copytree(ROOT / name, root / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", root / "source", "--outdir", root)
    [wheel] = root.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", root / "venv")
    python = root / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in required(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]):
        one = distribution(name)
        for top in {file.parts[0] for file in one.files or []} - {"..", "__pycache__"}:
            if not (place / top).exists():
                (place / top).symlink_to(Path(str(one.locate_file(top))).resolve())
    return python.parent


def run(*words: object, cwd: Path = Path("/"), code: int = 0) -> str:
    done = subprocess.run([*map(str, words)], cwd=cwd, env=environment(cwd), capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def environment(home: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.long
def test_the_first_commands_of_readme_need_the_wheel_alone(bin: Path, tmp_path: Path) -> None:
    """As typed, but the run is made small, and the service has a free port."""
    write_corpus(tmp_path / "path/to/corpus")
    installed, new, cd, *rest = (shlex.split(one.text, comments=True) for one in section("README.md", "Stillhouse"))
    assert installed == ["pip", "install", "stillhouse"]
    work = tmp_path / cd[1]
    said = run(bin / new[0], *new[1:], cwd=tmp_path)
    assert f"cd {cd[1]} && stillhouse run" in said
    shrink(work)
    trained, search, serve = ([bin / words[0], *words[1:]] for words in rest if words[0] == "stillhouse")
    run(*trained, cwd=work)
    hits = json.loads(run(*search[:2], "--json", *search[2:], cwd=work))["hits"]
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1)) and len(hits) > 2
    line = re.compile(r" 1\. .+  \[-?\d+\.\d{4}\]  \S+#\d+")  # as README shows it
    printed, shown = run(*search, cwd=work), (ROOT / "README.md").read_text()
    assert line.fullmatch(printed.splitlines()[0]) and any(map(line.fullmatch, shown.splitlines()))
    port = free_port()
    with subprocess.Popen([*serve, "--port", str(port)], cwd=work, env=environment(work)) as service:
        try:
            wait_for(port)
            body = json.dumps({"query": " ".join(search[2:]), "top": len(hits)}).encode()
            request = Request(f"http://127.0.0.1:{port}/search", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=60) as response:
                [served] = json.load(response)["answers"]
        finally:
            service.terminate()
    assert [hit["passage_id"] for hit in served["hits"]] == [hit["passage_id"] for hit in hits]


def test_the_examples_are_installed(bin: Path) -> None:
    installed = bin.parent / "share" / "stillhouse" / "examples"
    for example in (ROOT / "examples").glob("*.*"):
        assert (installed / example.name).read_bytes() == example.read_bytes()


def test_every_place_names_the_same_version(bin: Path) -> None:
    [version] = {
        run(bin / "stillhouse", "--version").split()[1],
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"],
        image.DEFAULT.split(":")[1],
    }
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("pipeline", "compile"), "kubeflow"),
        (("ingest", "--source", "a", "--repo", "b", "--corpus", "c"), "dvc"),
        (("tune",), "tune"),
    ],
)
def test_a_missing_extra_is_one_sentence_with_the_command(
    bin: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    shutil.copy(ROOT / "stillhouse/recipes/labelled.yaml", tmp_path / "params.yaml")
    [said] = run(bin / "stillhouse", *words, cwd=tmp_path, code=2).splitlines()
    assert f"pip install 'stillhouse[{extra}]'" in said


def test_extras_named_in_the_code_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = "".join(path.read_text() for path in (ROOT / "stillhouse").rglob("*.py"))
    named = set(re.findall(r"stillhouse\[(\w+)\]", text))
    assert {"kubeflow", "dvc"} <= named <= known.keys()
