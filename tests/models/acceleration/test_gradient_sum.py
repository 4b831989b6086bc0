"""The gradients of several processes are summed bucket by bucket, the first ones during the backward pass.

Under torchrun, this file computes the gradients of one process: `python FILE FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn

from stillhouse.core.context import rank, world_size
from stillhouse.models.acceleration import processes
from stillhouse.models.acceleration.processes import GradientSum

PROCESSES = 3
EARLY = {1: 6, 100: 1, 2**20: 0}
"""How many buckets the first process sends during its last backward pass, by the buckets' size. The others use too few
parameters in theirs."""


class Towers(nn.Module):
    """Layers of which some losses use only a part, one that none uses, and one that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.unused, self.second, self.first, self.third, self.shared = (nn.Linear(4, 4) for _ in range(5))
        self.factor = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))

    def losses(self, process: int) -> list[Tensor]:
        """The process's losses: the second one has none of the third layer, the last one has none at all."""
        states = self.shared(self.first(torch.arange(4.0) + process))
        whole = self.third(self.shared(states)).square().sum() + (states.mean() * self.factor).sum()
        return [[self.second(states.detach()).sum(), whole], [self.second(states.detach() * 2).sum()], []][process]


def gradients(losses: list[Tensor], model: nn.Module) -> tuple[dict[str, Tensor | None], int]:
    """The summed gradients, and how many buckets were sent before the last backward pass had ended."""
    with closing(GradientSum(list(model.parameters()))) as summed:
        for number, loss in enumerate(losses):
            if number == len(losses) - 1:
                summed.begin()
            loss.backward(retain_graph=True)
        early = len(summed.sent)
        summed.finish()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, early


@pytest.mark.parametrize("bucket", EARLY)
def test_the_sum_over_processes_is_the_gradient_of_all_losses(bucket: int, tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}", __file__, str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "BUCKET": f"{bucket}"}
    done = subprocess.run([sys.executable, *launch], capture_output=True, text=True, env=environment, timeout=120)
    model = Towers()
    expected, _ = gradients([loss for process in range(PROCESSES) for loss in model.losses(process)], model)
    for process in range(PROCESSES):
        assert (tmp_path / f"{process}.pt").is_file(), done.stdout + done.stderr
        found, early = torch.load(tmp_path / f"{process}.pt")
        for name, values in expected.items():
            if values is None:
                assert found[name] is None, name
            else:
                torch.testing.assert_close(found[name], values, msg=lambda text, name=name: f"{name}: {text}")
        assert early == (0 if process else EARLY[bucket]), process
    assert expected["unused.weight"] is None and expected["third.weight"] is not None


@pytest.mark.parametrize(("bucket", "buckets", "early"), [(1, 6, 6), (100, 2, 2), (2**20, 1, 1)])
def test_buckets_are_sent_during_the_last_backward_pass(
    bucket: int, buckets: int, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent before `begin`, however many backward passes there are; after `close`, nothing is sent at all."""
    sent: list[Tensor] = []

    class Done:
        def wait(self) -> None: ...

    def all_reduce(flat: Tensor, async_op: bool) -> Done:
        sent.append(flat)
        return Done()

    monkeypatch.setattr(processes, "world_size", lambda: 2)
    monkeypatch.setattr(processes, "BUCKET", bucket)
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    summed = GradientSum(list(model.parameters()))
    assert len(summed.buckets) == buckets
    for _ in range(2):  # two steps
        sent.clear()
        model(torch.ones(4)).sum().backward()
        assert not sent
        summed.begin()
        model(torch.ones(4)).sum().backward()
        assert len(sent) == early
        summed.finish()
        assert len(sent) == buckets
    summed.begin()
    summed.close()
    model(torch.ones(4)).sum().backward()
    assert len(sent) == buckets


def main(folder: Path) -> None:
    processes.BUCKET = int(os.environ["BUCKET"])
    processes.join(torch.device("cpu"))
    assert world_size() == PROCESSES
    model = Towers()
    torch.save(gradients(model.losses(rank()), model), folder / f"{rank()}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
