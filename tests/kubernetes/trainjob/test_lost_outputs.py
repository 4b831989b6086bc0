"""A job that succeeded but has no outputs: lost outputs are made again once, outputs that never arrived are not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_cluster import FakeCluster
from learning_step import begin, end_well, good_course, run

from stillhouse.errors import InputError
from stillhouse.kubernetes.trainjob.cluster import Cluster
from stillhouse.kubernetes.trainjob.exchange import exchange_root


def only_folder() -> Path:
    [folder] = [path for path in exchange_root().iterdir() if path.is_dir()]
    return folder


def damage() -> None:
    (only_folder() / "outputs" / "curves" / "model.bin").write_bytes(b"x")


LOSSES: dict[str, Callable[[], object]] = {
    "the whole volume": lambda: shutil.rmtree(exchange_root()),
    "the job's folder": lambda: shutil.rmtree(only_folder()),
    "all outputs": lambda: shutil.rmtree(only_folder() / "outputs"),
    "one output": lambda: shutil.rmtree(only_folder() / "outputs" / "curves"),
    "a file of an output": lambda: (only_folder() / "outputs" / "encoder" / "model.bin").unlink(),
    "what stands in a file": damage,
    "the figures": lambda: (only_folder() / "report.json").unlink(),
}


@pytest.mark.parametrize("case", LOSSES)
def test_lost_outputs_are_made_again(
    case: str, fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    fake.script = good_course(fake)
    run(cluster, tokens, tmp_path / "out")
    [name] = fake.jobs
    LOSSES[case]()
    fake.script = [lambda: None]
    fake.script += [lambda: None, *good_course(fake)]
    assert run(cluster, tokens, tmp_path / "again").metrics == {"loss": 0.25}
    assert fake.only_job()["metadata"]["uid"] == "uid-2", "made once more, and no more often"
    assert (tmp_path / "again" / "curves" / "model.bin").read_bytes() == b"0.5"
    assert f"TrainJob {name}: an earlier try of it succeeded, but its outputs are gone from the volume; starting" in (
        "\n".join(logged)
    )


def test_outputs_that_never_arrived_are_not_made_again(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    """Nodes that mount another volume would only repeat all the work for nothing."""
    fake.script = [lambda: begin(fake), lambda: end_well(fake)]
    for _ in range(3):
        with pytest.raises(InputError, match="ReadWriteMany"):
            run(cluster, tokens, tmp_path / "out")
    assert [verb for verb, _, resource in fake.calls if resource == "trainjobs" and verb != "get"] == ["create"]


def test_outputs_that_appear_late_are_collected(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    """Some shared file systems show new files only after a moment."""
    fake.script = good_course(fake)
    run(cluster, tokens, tmp_path / "out")
    shutil.move(only_folder() / "outputs", tmp_path / "late")
    (only_folder() / "nothing-came").touch()
    with pytest.raises(InputError, match="ReadWriteMany"):
        run(cluster, tokens, tmp_path / "again")
    shutil.rmtree(only_folder() / "outputs")
    shutil.move(tmp_path / "late", only_folder() / "outputs")
    assert run(cluster, tokens, tmp_path / "again").metrics == {"loss": 0.25}
    assert fake.only_job()["metadata"]["uid"] == "uid-1"
