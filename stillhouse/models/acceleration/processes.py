"""Training with several processes, started by `torchrun`: sharing parts and adding up results.

Every process computes some parts of a step's batch. The sum of their gradients is the gradient of the whole batch, so
results do not depend on the number of processes.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

from stillhouse.core.context import rank, world_size

T = TypeVar("T")

PATIENCE = timedelta(hours=2)
"""How long a process waits for the others, which may be running an evaluation."""


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


def add_gradients(parameters: Sequence[Tensor]) -> None:
    """Add up the gradients of all processes in place; a missing gradient counts as 0.

    A parameter without a gradient in any process stays without one, so weight decay skips it as in a single process.
    """
    if world_size() == 1 or not parameters:
        return
    used_P = torch.tensor([float(parameter.grad is not None) for parameter in parameters], device=parameters[0].device)
    distributed.all_reduce(used_P)
    for parameter, used in zip(parameters, used_P.tolist()):
        if used and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    distributed.all_reduce(flat)
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


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
