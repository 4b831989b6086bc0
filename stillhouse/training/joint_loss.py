"""One loss over the vectors of a whole batch, whose texts are encoded in parts: by several processes, or in turn.

The loss of a part alone would miss the negatives of the others. So every process encodes its own parts, all exchange
the vectors without their history, each computes the loss of all of them and its gradient with respect to the vectors,
and takes that gradient back through its own parts alone. The sum over the processes is the gradient of the batch, for
every loss. With `again` a part keeps nothing between its two encodings (gradient caching, Gao et al. 2021), so that
the memory of a batch is that of its largest part.

The bi-encoder's training and the pair tasks of pre-training use it.

Shape suffixes: N texts of a batch, P of a part, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.context import world_size
from stillhouse.training.batches import cheapest_parts, length_parts
from stillhouse.training.processes import add_up, own_parts
from stillhouse.training.random_state import seed_torch

PART_COST = {"cpu": 128, "cuda": 4096}
"""The tokens that are computed in the time that one part more takes, whatever is in it."""


@dataclass(frozen=True)
class BatchTexts:
    """The queries or the passages of a batch: `lengths` int64 [N] in tokens, and `encode(rows)`, the vectors [P, D] of
    those of the given numbers, int64 [P]."""

    lengths: NDArray[np.int64]
    encode: Callable[[NDArray[np.int64]], Tensor]


@dataclass(frozen=True)
class Part:
    """Texts that are encoded together: `encode()` gives vectors [P, D] for the `places` int64 [P] among the batch's N.

    `seed` is that of the part's dropout; without one it goes on with the step's random numbers.
    """

    places: NDArray[np.int64]
    encode: Callable[[], Tensor]
    seed: int | None = None

    def vectors(self) -> Tensor:
        """The vectors [P, D], with the same dropout at every call where there is a seed."""
        if self.seed is not None:
            seed_torch(self.seed)
        return self.encode()


def make_parts(
    kinds: Sequence[BatchTexts], mini_batch_size: int | None, *, unpadded: bool, device: torch.device, training: bool
) -> list[Part]:
    """The parts of a batch; the places of a kind's texts follow those of the kind before.

    A part has at most `mini_batch_size` texts of one kind, of like length. Without it, each process has one part of
    each kind; a process alone has one too where no padding is computed (`unpadded`), else the parts that cost least.
    With `training` a part has its own dropout wherever other processes or sizes of parts could change it.
    """
    several = mini_batch_size is not None or world_size() > 1
    cut = []
    first = 0
    for kind in kinds:
        count = len(kind.lengths)
        if several:
            groups = length_parts(kind.lengths, mini_batch_size or -(-count // world_size()))
        else:
            groups = [np.arange(count)] if unpadded else cheapest_parts(kind.lengths, PART_COST[device.type])
        cut += [(first + rows, partial(kind.encode, rows)) for rows in groups]
        first += count
    # Without a size of parts, one process goes on with the random numbers of the step.
    seeds = part_seeds(len(cut)) if training and several else [None] * len(cut)
    return [Part(*part, seed) for part, seed in zip(cut, seeds)]


def part_seeds(count: int) -> list[int]:
    """The seed of every part's dropout, whichever process encodes it: of the step's random numbers, the same in all."""
    return [int(seed) for seed in torch.randint(2**62, (count,))]


def joint_losses(
    parts: Sequence[Part], vectors_ND: Tensor, loss: Callable[[Tensor], Tensor], again: bool
) -> Iterator[Tensor]:
    """What this process back-propagates of `loss(vectors_ND)`, a scalar that all compute alike, outside autocast.

    The losses that all processes yield add up to its value, their gradients to its gradient. `vectors_ND` is filled
    here: its shape, dtype and device are those of all vectors together. With `again`, each part is encoded without
    gradients first and with them when its turn comes, which needs a seed in every part; a loss must be back-propagated
    before the next is asked for.
    """
    assert not again or all(part.seed is not None for part in parts), "a part would get another dropout"
    own = [parts[number] for number in own_parts(len(parts))]
    kept = []
    for part in own:
        with torch.set_grad_enabled(not again):
            vectors_PD = part.vectors()
        vectors_ND[_at(part, vectors_ND)] = vectors_PD.detach()
        kept += [] if again else [vectors_PD]
    add_up(vectors_ND)
    leaf_ND = vectors_ND.requires_grad_()
    with torch.autocast(vectors_ND.device.type, enabled=False):
        value = loss(leaf_ND)
        (gradient_ND,) = torch.autograd.grad(value, leaf_ND)
    # The value counts once, beside the first part, which the first process has.
    counts = value.detach() if 0 in own_parts(len(parts)) else torch.zeros_like(value)
    if kept:
        places = np.concatenate([part.places for part in own])
        yield _with_gradient(torch.cat(kept), gradient_ND[torch.from_numpy(places).to(vectors_ND.device)], counts)
    for part in own if again else []:
        yield _with_gradient(part.vectors(), gradient_ND[_at(part, vectors_ND)], counts)
        counts = torch.zeros_like(value)


@torch.no_grad()
def joint_loss(parts: Sequence[Part], vectors_ND: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """`loss(vectors_ND)` alone, the same in every process; each encodes its own parts."""
    for number in own_parts(len(parts)):
        vectors_ND[_at(parts[number], vectors_ND)] = parts[number].vectors()
    add_up(vectors_ND)
    with torch.autocast(vectors_ND.device.type, enabled=False):
        return loss(vectors_ND)


def _at(part: Part, vectors_ND: Tensor) -> Tensor:
    return torch.from_numpy(part.places).to(vectors_ND.device)


def _with_gradient(vectors_PD: Tensor, gradient_PD: Tensor, value: Tensor) -> Tensor:
    """A scalar of the given value whose gradient with respect to the vectors is the given one."""
    product = (vectors_PD * gradient_PD).sum()
    return product - product.detach() + value
