"""Cores and memory under limits of control groups, in trees of files as the kernel shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stillhouse.core import own_machine
from stillhouse.core.own_machine import own_cores, own_memory

GIB = 2**30


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 cores and 256 GiB, and no control groups yet; returns the folder of the groups."""
    monkeypatch.setattr(own_machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(own_machine, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * 2**20}.__getitem__)
    return tmp_path / "groups"


def write(groups: Path, membership: str, files: Mapping[str, str]) -> None:
    (groups.parent / "membership").write_text(membership)
    for name, content in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_a_machine_without_limits_is_all_there(machine: Path) -> None:
    assert (own_cores(), own_memory()) == (64, 256 * GIB), "not Linux"
    write(machine, "0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"})
    assert (own_cores(), own_memory()) == (64, 256 * GIB)


def test_a_pod_has_its_limits(machine: Path) -> None:
    write(machine, "0::/\n", {"cpu.max": "800000 100000\n", "memory.max": f"{12 * GIB}\n"})
    assert (own_cores(), own_memory()) == (8, 12 * GIB)


def test_the_tightest_limit_up_to_the_root_holds(machine: Path) -> None:
    cores = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "400000 100000", "c/cpu.max": "1 100000"}
    write(machine, "0::/a/b\n", cores | {"a/memory.max": f"{2 * GIB}", "a/b/memory.max": "max"})
    assert (own_cores(), own_memory()) == (3, 2 * GIB)


@pytest.mark.parametrize("name", ["/kubepods/not/seen/here", "/../../elsewhere"])
def test_a_container_that_sees_only_its_root_has_the_root_s_limits(machine: Path, name: str) -> None:
    write(machine, f"0::{name}\n", {"cpu.max": "200000 100000"})
    (machine.parent / "cpu.max").write_text("1000 100000")  # above the groups
    assert own_cores() == 2
