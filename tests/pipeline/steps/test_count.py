"""Step `count`: the counts of shards add up to those of the whole corpus, and importance is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from token_folders import write_tokens

from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.trainjob.division import add_up
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP, Config

RunStep = Callable[..., dict[str, Path]]
PASSAGES = [[2, 4, 2, 3, 8], [4, 2, 3], [2, 3, 8, 9, 5], [6], [], [4, 2, 4, 2, 3, 8, 9]]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A token folder of six passages, one of them empty."""
    return write_tokens(tmp_path / "tokens", PASSAGES, "a")


def parts(run_step: RunStep, tokens: Path, shards: int) -> list[Path]:
    return [
        run_step("count", {"tokens": tokens}, f"{shard}", shard=shard, shards=shards)["counts"]
        for shard in range(1, shards + 1)
    ]


def scored_by(counts: Path, tokens: Path, out: Path, **settings: int) -> Path:
    execute(STEP, Config(**settings), {"tokens": tokens}, {"importance": out}, shares=counts)
    return out


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_counts_of_shards_are_those_of_the_whole(shards: int, run_step: RunStep, tokens: Path, tmp_path: Path) -> None:
    """With eight shards of six passages, some shards have nothing to count."""
    counted = parts(run_step, tokens, shards)
    assert sum(read_manifest(part).facts["passages"] for part in counted) == len(PASSAGES)
    add_up(counted, tmp_path / "counts")
    summed = scored_by(tmp_path / "counts", tokens, tmp_path / "summed")
    whole = run_step("importance", {"tokens": tokens}, "whole")["importance"]
    assert digest_files(summed) == digest_files(whole), "counts and importance, to the byte"
    for name in (path.name for path in (tmp_path / "counts").glob("ngrams_*")):
        assert (tmp_path / "counts" / name).read_bytes() == (whole / name).read_bytes()


def test_pruning_is_that_of_the_whole(run_step: RunStep, tokens: Path, tmp_path: Path) -> None:
    """An n-gram that is rare in every shard may be frequent overall, so only the sum is pruned."""
    add_up(parts(run_step, tokens, 3), tmp_path / "counts")
    summed = scored_by(tmp_path / "counts", tokens, tmp_path / "summed", min_count=2)
    whole = run_step("importance", {"tokens": tokens}, "whole", min_count=2)["importance"]
    assert digest_files(summed) == digest_files(whole)


BAD: dict[str, tuple[Callable[[list[Path]], list[Path]], str]] = {
    "none": (lambda made: [], r"shards \[\]"),
    "one missing": (lambda made: made[:2], r"shards \[1, 2\], not each shard once"),
    "one twice": (lambda made: [*made, made[0]], r"shards \[1, 1, 2, 3\], not each shard once"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_missing_shard_is_refused(case: str, run_step: RunStep, tokens: Path, tmp_path: Path) -> None:
    change, message = BAD[case]
    with pytest.raises(InputError, match=message):
        add_up(change(parts(run_step, tokens, 3)), tmp_path / "counts")
    assert not (tmp_path / "counts").exists()
