"""torchrun with the exit code of its processes.

torchrun itself always ends with 1 if a process fails. This program passes on the exit code of its processes, to
distinguish bad input from a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stillhouse.core.errors import CRASH, InputError
from stillhouse.kubeflow.pods.process import one_line_errors, refuse_lost_gpu
from stillhouse.models.acceleration.threads import divide_threads


def torchrun(words: Sequence[str]) -> int:
    """Runs torchrun with these command-line arguments and returns the most informative exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import determine_local_world_size, parse_args, run

    arguments = parse_args(list(words))
    divide_threads(determine_local_world_size(arguments.nproc_per_node))
    try:
        run(arguments)
    except ChildFailedError as error:
        first = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        return exit_code([failure.exitcode for failure in first])
    except SignalException as error:  # this machine is being taken away; its processes got the signal too
        return exit_code([-error.sigval])
    return 0


def exit_code(codes: Sequence[int]) -> int:
    """The exit code of a group of processes, given in the order they ended.

    Bad input outranks failures that merely follow from it. The code of a process that a signal ended is negative here
    and becomes 128 plus the signal, as usual.
    """
    refused = [code for code in codes if code == InputError.exit_code]
    code = (refused or [*codes, CRASH])[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    with one_line_errors():
        refuse_lost_gpu()
    sys.exit(torchrun(sys.argv[1:]))
