"""What runs on each node of a `TrainJob`: the preflight, then torchrun, which starts the step's processes.

Trainer says in torchrun's own environment variables (`PET_…`) how many nodes there are, which one this is and where the
first one listens. torchrun itself ends with 1 whatever its processes ended with; here their exit code is handed on, so
that bad input is told from a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stillhouse.errors import InputError
from stillhouse.surfaces.component import told_in_a_sentence
from stillhouse.surfaces.preflight_command import check_pod
from stillhouse.surfaces.several_processes import torchrun_words

CRASH = 1


def main(argv: Sequence[str]) -> int:
    """Runs a step's command line by this node's processes and returns the exit code that says most."""
    with told_in_a_sentence():
        check_pod()
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(torchrun_words(argv)))
    except ChildFailedError as error:
        first = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        return exit_code([failure.exitcode for failure in first])
    except SignalException as error:  # this node is taken away; its processes were told too
        return exit_code([-error.sigval])
    return 0


def exit_code(codes: Sequence[int]) -> int:
    """That of several processes, the first to end first: bad input goes before what only follows from it.

    A process that a signal ended has a negative one here, and 128 and the signal outside, as everywhere.
    """
    told = [code for code in codes if code == InputError.exit_code]
    code = (told or [*codes, CRASH])[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
