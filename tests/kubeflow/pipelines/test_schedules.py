"""Schedules with a cluster in memory: what `apply` does to it, and what it never does."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

import pytest
from cluster_in_memory import Memory, actions, schedule

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.apply import MARK, name_of


def test_apply_makes_the_cluster_equal_to_the_file() -> None:
    cluster = Memory()
    two = [schedule(), schedule("weekly", cron="0 0 4 * * 0", enabled=False)]
    assert actions(two, cluster, dry=True) == ["create", "create"] and not cluster.recurring
    actions(two, cluster)
    assert cluster.enabled == [name_of(two[0])] and len(cluster.recurring) == 2
    before = deepcopy(cluster.recurring)
    assert actions(two, cluster) == ["keep", "keep"] and cluster.recurring == before
    assert actions([two[0]], cluster) == ["keep", "delete"] and len(cluster.recurring) == 1
    assert actions([schedule(enabled=False)], cluster) == ["disable"] and cluster.enabled == []
    assert actions([schedule()], cluster) == ["enable"] and len(cluster.recurring) == 1


CHANGES: dict[str, dict[str, Any]] = {
    "cron": {"cron": "0 30 3 * * *"},
    "parameters": {"parameters": {"revision": "main"}},
    "version": {"version": "v2"},
    "pipeline": {"pipeline": "train"},
    "account": {"service_account": "trainer"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_schedule_gets_a_successor(change: str) -> None:
    cluster = Memory()
    actions([schedule()], cluster)
    new = schedule(**CHANGES[change])
    assert actions([new], cluster) == ["create", "delete"]
    assert [entry.display_name for entry in cluster.recurring_runs()] == [name_of(new)]


def test_a_schedule_stays_until_its_successor_exists() -> None:
    """The cluster refuses a new schedule: nothing is deleted."""
    cluster = Memory()
    actions([schedule(), schedule("weekly")], cluster)
    cluster.refused = {"nightly"}
    new = [schedule(cron="0 0 5 * * *")]
    with pytest.raises(InputError, match=r"refuses the recurring run \(400\)"):
        actions(new, cluster)
    assert cluster.enabled == [name_of(schedule()), name_of(schedule("weekly"))]
    cluster.refused = set()
    assert actions(new, cluster) == ["create", "delete", "delete"]
    assert cluster.enabled == [name_of(new[0])]


def test_schedules_of_another_experiment_are_left_alone() -> None:
    """Two teams may share a namespace, each with its own file, or a team may have renamed its experiment."""
    cluster = Memory()
    number = cluster.create(schedule(), name_of(schedule()), f"{MARK} nightly")
    cluster.recurring[number].experiment_id = "e2"
    other = copy(cluster.recurring[number])
    assert actions([schedule()], cluster) == ["create"]
    assert actions([], cluster) == ["delete"]
    assert cluster.recurring == {number: other}


def test_of_two_schedules_that_two_commands_made_at_once_one_stays() -> None:
    """Otherwise each would start every run."""
    cluster = Memory()
    numbers = [cluster.create(schedule(), name_of(schedule()), f"{MARK} nightly") for _ in range(2)]
    assert actions([schedule()], cluster) == ["keep", "delete"]
    assert len(cluster.recurring) == 1 and set(cluster.recurring) < set(numbers)
    assert actions([schedule()], cluster) == ["keep"]
