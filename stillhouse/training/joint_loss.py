"""One loss over the vectors of a whole batch that is encoded in parts, by several processes or one after another.

The loss of a single part would miss the negatives of the others. So every process encodes its own parts and all
exchange the vectors without their graphs. Each process computes the loss of all vectors and its gradient with respect
to them, and back-propagates that gradient through its own parts alone. The sum over the processes is the gradient of
the batch, for any loss. With `again`, a part keeps nothing between its two encodings (gradient caching, Gao et al.
2021), so a batch needs only the memory of its largest part.

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

from stillhouse.core.context import world_size
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.acceleration.processes import add_up, own_parts
from stillhouse.training.batches import cheapest_parts, length_parts

PART_COST = {"cpu": 128, "cuda": 4096}
"""The fixed cost of one more part, as a number of tokens computed in the same time."""


@dataclass(frozen=True)
class BatchTexts:
    """The queries or the passages of a batch: `lengths` int64 [N] in tokens, and `encode(rows)`, which gives vectors
    [P, D] for the numbers `rows`, int64 [P]."""

    lengths: NDArray[np.int64]
    encode: Callable[[NDArray[np.int64]], Tensor]


@dataclass(frozen=True)
class Part:
    """Texts that are encoded together: `encode()` gives vectors [P, D] for the `places` int64 [P] among the batch's N.

    `seed` seeds the part's dropout; without it, dropout continues the step's random numbers.
    """

    places: NDArray[np.int64]
    encode: Callable[[], Tensor]
    seed: int | None = None

    def vectors(self) -> Tensor:
        """The vectors [P, D]; with a seed, every call uses the same dropout."""
        if self.seed is not None:
            torch.manual_seed(self.seed)
        return self.encode()


def make_parts(
    kinds: Sequence[BatchTexts], mini_batch_size: int | None, *, unpadded: bool, device: torch.device, training: bool
) -> list[Part]:
    """The parts of a batch; the places of a kind's texts follow those of the previous kind.

    A part has at most `mini_batch_size` texts of one kind and similar length. Without it, each of several processes has
    one part per kind. A single process has one part per kind if no padding is computed (`unpadded`), else the cheapest
    parts. With `training`, a part gets its own dropout seed wherever processes or part sizes could change the dropout.
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
    # Without a part size, a single process continues the random numbers of the step.
    if not (training and several):
        return [Part(*part) for part in cut]
    # The step's random numbers are the same in all processes.
    return [Part(*part, int(seed)) for part, seed in zip(cut, torch.randint(2**62, (len(cut),)))]


@dataclass(frozen=True)
class Losses:
    """Losses whose sum is a process's share of a step's loss; each is to be back-propagated before the next is made.

    Since their number is known, the gradients can be sent to the other processes during the last backward pass.
    """

    number: int
    made: Iterator[Tensor]

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[Tensor]:
        return self.made


def joint_losses(parts: Sequence[Part], vectors_ND: Tensor, loss: Callable[[Tensor], Tensor], again: bool) -> Losses:
    """This process's share of `loss(vectors_ND)`, a scalar that all processes compute alike, without autocast.

    The losses of all processes add up to its value, and their gradients to its gradient. `vectors_ND` is filled here;
    it has the shape, dtype and device of all vectors together. With `again`, each part is first encoded without
    gradients, and with them in its turn, which needs a seed in every part.
    """
    assert not again or all(part.seed is not None for part in parts), "a part would get another dropout"
    own = [parts[number] for number in own_parts(len(parts))]

    def made() -> Iterator[Tensor]:
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
        # The value counts once, with the first part, which belongs to the first process.
        counts = value.detach() if 0 in own_parts(len(parts)) else torch.zeros_like(value)
        if kept:
            places = np.concatenate([part.places for part in own])
            yield _with_gradient(torch.cat(kept), gradient_ND[on_device(places, vectors_ND.device)], counts)
        for part in own if again else []:
            yield _with_gradient(part.vectors(), gradient_ND[_at(part, vectors_ND)], counts)
            counts = torch.zeros_like(value)

    return Losses(len(own) if again else min(1, len(own)), made())


@torch.no_grad()
def joint_loss(parts: Sequence[Part], vectors_ND: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """`loss(vectors_ND)`, the same in every process; each encodes its own parts."""
    for number in own_parts(len(parts)):
        vectors_ND[_at(parts[number], vectors_ND)] = parts[number].vectors()
    add_up(vectors_ND)
    with torch.autocast(vectors_ND.device.type, enabled=False):
        return loss(vectors_ND)


def _at(part: Part, vectors_ND: Tensor) -> Tensor:
    return on_device(part.places, vectors_ND.device)


def _with_gradient(vectors_PD: Tensor, gradient_PD: Tensor, value: Tensor) -> Tensor:
    """A scalar with the given value and the given gradient with respect to the vectors."""
    product = (vectors_PD * gradient_PD).sum()
    return product - product.detach() + value
