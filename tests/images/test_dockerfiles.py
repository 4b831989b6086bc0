"""What the Dockerfiles guarantee, as far as their text shows. `make images-try` checks the built images."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "images"
DOCKERFILES = {path.parent.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("*/Dockerfile")}


def final(name: str) -> str:
    """Return the last stage, which is the only one in the image."""
    return DOCKERFILES[name].split("\nFROM ")[-1]


def environment(name: str) -> dict[str, str]:
    [line] = re.findall(r"^ENV (.*)$", final(name).replace("\\\n", ""), re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())


def volumes(name: str) -> list[Path]:
    [line] = re.findall(r"^VOLUME \[(.*)\]$", final(name), re.MULTILINE)
    return [Path(word.strip().strip('"')) for word in line.split(",")]


def within(path: str, folders: list[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_keep_the_documented_promises(name: str) -> None:
    text = DOCKERFILES[name]
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == ["scratch AS wheels", "${BASE} AS build", "${BASE}"]
    assert re.search(r"^ARG BASE$", text, re.MULTILINE), "no default: nobody builds on a moving tag"
    assert re.search(r"^USER 10001:10001$", final(name), re.MULTILINE)
    assert "org.opencontainers.image.revision" in final(name)
    assert environment(name)["STILLHOUSE_REVISION"] == "${REVISION}"
    assert final(name).count("COPY ") == final(name).count("COPY --from=build /opt/stillhouse /opt/stillhouse") == 1


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_written_goes_to_volumes(name: str) -> None:
    """By default, DVC writes to /var/tmp, which is outside the volumes."""
    variables = environment(name)
    for variable in ("HOME", "TMPDIR", "STILLHOUSE_WORK", "DVC_SITE_CACHE_DIR"):
        assert within(variables[variable], volumes(name)), variable


@pytest.mark.parametrize(
    "table",
    sorted((ROOT / "stillhouse" / "kubeflow" / "pipelines" / "placements").glob("*.yaml")),
    ids=attrgetter("stem"),
)
def test_pods_mount_what_the_image_declares(table: Path) -> None:
    shared = yaml.safe_load(table.read_text(encoding="utf-8"))["shared"]
    mounted = [Path(shared["scratch_path"]), *(Path(claim["path"]) for claim in shared["claims"])]
    assert all(within(str(place), volumes("gpu")) for place in mounted)
    written = environment("gpu") | shared["environment"]
    for variable in ("HOME", "TMPDIR", "STILLHOUSE_WORK", "DVC_SITE_CACHE_DIR"):
        assert within(written[variable], mounted), variable
    assert f"USER {shared['user']}:{shared['group']}\n" in final("gpu")


def test_everything_is_installed_by_its_hash() -> None:
    commands = re.findall(r"pip install ([^&\n]*)", (IMAGES / "install").read_text(encoding="utf-8"))
    assert commands and all("--require-hashes" in command for command in commands)
    for text in DOCKERFILES.values():
        for command in re.findall(r"pip install ([^&\n]*)", text.replace("\\\n", " ")):
            assert {"--no-index", "--no-deps", "/source"} <= set(command.split()), command
        assert not re.search(r"gcc|build-essential|apt", text)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_copied_paths_exist_and_are_not_ignored(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    text = DOCKERFILES[name].replace("\\\n", " ")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    found = [word for words in copied for word in words.split()] + re.findall(r"type=bind,source=([^,]+)", text)
    found += [f"images{place}" for place in re.findall(r"/locks/\S+\.txt", text.replace("${VARIANT}", "cpu"))]
    assert len(found) > 6
    for source in found:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] not in ignored, source
