"""What every process in a pod does: errors in one line, and no step on the CPU of a pod that has a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from stillhouse.core.errors import (
    CRASH,
    INTERRUPTED,
    INTERRUPTION,
    CrashElsewhere,
    InputError,
    ValidationFailed,
    access_errors,
    is_full_disk,
)
from stillhouse.core.terminal import warn
from stillhouse.models.acceleration.threads import prepare_threads

SENTENCE = "stillhouse: "
"""The start of the line in which a process says why it ended, or how a refresh did."""
HAS_GPU = "STILLHOUSE_HAS_GPU"
"""Environment variable of a pod or node that its placement gives an accelerator."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the process like the command line: bad input with its message and exit code, without a stack trace.

    The same holds for a full disk or a volume at its quota, which the pod's placement can fix. Every pod starts with
    this, before it imports PyTorch, so its threads are set here too.
    """
    prepare_threads()
    try:
        with access_errors():
            yield
    except KeyboardInterrupt:  # in a run on this machine
        warn(INTERRUPTION)
        raise SystemExit(INTERRUPTED) from None
    except (InputError, ValidationFailed, CrashElsewhere) as error:
        warn(f"{SENTENCE}{error}")
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if not is_full_disk(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        remedy = "raise `scratch` in the placement, or free or enlarge the work volume; outputs are unchanged"
        warn(f"{SENTENCE}{error.strerror}{where}; {remedy}")
        raise SystemExit(CRASH) from None


def refuse_lost_gpu() -> None:
    """Raises `InputError` in a pod whose GPU PyTorch cannot use: a step would compute on the CPU, for weeks."""
    if os.environ.get(HAS_GPU):
        import torch

        if not torch.cuda.is_available():
            raise InputError(
                "this pod has a GPU that PyTorch cannot use: set the pipeline's parameter `image` to the GPU image, or "
                "use nodes with a newer driver"
            )
