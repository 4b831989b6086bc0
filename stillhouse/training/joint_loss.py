"""One loss over the vectors of a whole batch, whose texts are encoded in parts: by several processes, or in turn.

The loss of a part alone would miss the negatives of the others. So every process encodes its own parts, all exchange
the vectors without their history, each computes the loss of all of them and its gradient with respect to the vectors,
and takes that gradient back through its own parts alone. The sum over the processes is the gradient of the batch, for
every loss. With `again` a part keeps nothing between its two encodings (gradient caching, Gao et al. 2021), so that
the memory of a batch is that of its largest part.

Shape suffixes: N texts of a batch, P of a part, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.training.processes import add_up, own_parts


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
            torch.manual_seed(self.seed)
        return self.encode()


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
