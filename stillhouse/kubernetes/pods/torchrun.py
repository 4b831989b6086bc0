"""torchrun whose exit code is that of its processes.

torchrun itself ends with 1 whatever its processes ended with; here their exit code is handed on, so that bad input is
distinguished from a crash.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stillhouse.errors import CRASH, InputError


def torchrun(words: Sequence[str]) -> int:
    """Runs torchrun with these words of its command line and returns the exit code that says most."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(list(words)))
    except ChildFailedError as error:
        first = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        return exit_code([failure.exitcode for failure in first])
    except SignalException as error:  # this machine is taken away; its processes got the signal too
        return exit_code([-error.sigval])
    return 0


def exit_code(codes: Sequence[int]) -> int:
    """That of several processes, the first to end first: bad input goes before what only follows from it.

    A process that a signal ended has a negative one here, and 128 and the signal outside, as everywhere.
    """
    refused = [code for code in codes if code == InputError.exit_code]
    code = (refused or [*codes, CRASH])[0]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(torchrun(sys.argv[1:]))
