"""Training with several processes, started by `torchrun`: sharing parts and adding up results.

Every process computes some parts of a step's batch. The sum of their gradients is the gradient of the whole batch, so
results do not depend on the number of processes.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, distributed

from stillhouse.core.context import rank, world_size

T = TypeVar("T")

PATIENCE = timedelta(hours=2)
"""How long a process waits for the others, which may be running an evaluation."""
BUCKET = 25 * 2**20
"""The bytes of gradients that are sent together, at least: DistributedDataParallel's default."""


def join(device: torch.device) -> None:
    """Connect to the other processes, once; a single process does nothing."""
    if world_size() > 1 and not distributed.is_initialized():
        if device.type == "cuda":  # or all processes would exchange objects through the first GPU
            torch.cuda.set_device(device)
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)


def wait_for_all() -> None:
    """Wait until every process of torchrun gets here."""
    if world_size() > 1:
        distributed.barrier()


def own_parts(parts: int) -> range:
    """The numbers of the parts of a batch that this process computes."""
    return range(rank(), parts, world_size())


class GradientSum:
    """Adds up the gradients of all processes, while the last backward pass of a step still runs.

    `begin()` comes before that pass and may be left out, `finish()` after it. All processes send their gradients in the
    same order and in buckets, each as soon as it is complete, as DistributedDataParallel does (Li et al. 2020). A
    bucket with a parameter that this pass does not use waits for `finish()`, and so do those after it. A missing
    gradient counts as 0. A parameter without a gradient in any process stays without one, so weight decay skips it as
    in a single process.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        # A backward pass makes the gradients of the last layers first.
        self.buckets = _buckets(parameters[::-1]) if world_size() > 1 else []
        self.missing: list[int] = []
        self.sent: list[tuple[Tensor, bool, distributed.Work]] = []
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._made, number))
            for number, bucket in enumerate(self.buckets)
            for parameter in bucket
        ]

    def begin(self) -> None:
        """From now on, every gradient is made for the last time."""
        self.missing = [len(bucket) for bucket in self.buckets]

    def finish(self) -> None:
        """Send what was not sent, and wait for the sums."""
        while len(self.sent) < len(self.buckets):
            self._send()
        for bucket, (flat, complete, work) in zip(self.buckets, self.sent):
            work.wait()
            *sums, used_P = flat.split([*(parameter.numel() for parameter in bucket), len(bucket)])
            # Reading which ones are used waits for a GPU.
            for parameter, total, used in zip(bucket, sums, [1] * len(bucket) if complete else used_P.tolist()):
                parameter.grad = total.view_as(parameter) if used else None
        self.missing, self.sent = [], []

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def _made(self, number: int, _: Tensor) -> None:
        if self.missing:
            self.missing[number] -= 1
            while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
                self._send()

    def _send(self) -> None:
        bucket = self.buckets[len(self.sent)]
        used = [each.grad is not None for each in bucket]
        grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in bucket]
        # Copying numbers to a GPU waits for it.
        used_P = grads[0].new_ones(len(used)) if all(used) else grads[0].new_tensor(used)
        flat = torch.cat([*(grad.reshape(-1) for grad in grads), used_P])
        for each in bucket:
            each.grad = None  # frees the memory
        self.sent.append((flat, all(used), distributed.all_reduce(flat, async_op=True)))


def _buckets(parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """The parameters in their order, cut after `BUCKET` bytes and where the dtype changes."""
    buckets: list[list[Tensor]] = []
    size = 0
    for parameter in parameters:
        if not buckets or size >= BUCKET or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets


def add_up(value: Tensor) -> None:
    """Sum values of any shape over all processes, in place and without waiting for the device."""
    if world_size() > 1:
        distributed.all_reduce(value)


def agreed(found: T) -> T:
    """The value of the first process, for all processes."""
    if world_size() == 1:
        return found
    box = [found]
    distributed.broadcast_object_list(box, src=0)
    return box[0]
