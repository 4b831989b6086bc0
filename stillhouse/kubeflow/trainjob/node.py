"""The program on each node of a `TrainJob`: the preflight, then torchrun, which starts the step's processes.

Trainer sets torchrun's own environment variables (`PET_…`): the number of nodes, the number of this one, and the
address of the first one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from stillhouse.core.errors import CRASH
from stillhouse.core.terminal import warn
from stillhouse.kubeflow.pods.in_pod import one_line_errors
from stillhouse.kubeflow.pods.pod_preflight import check_pod
from stillhouse.kubeflow.pods.several_processes import torchrun_words
from stillhouse.kubeflow.pods.torchrun import torchrun
from stillhouse.kubeflow.trainjob.last_words import ENDED


def main(argv: Sequence[str]) -> int:
    """Runs a step's command line in this node's processes and returns the most informative exit code."""
    return end_of_node(lambda: torchrun(torchrun_words(argv)), parallel=True)


def end_of_node(work: Callable[[], int], *, parallel: bool = False) -> int:
    """Does the node's `work` after its preflight and returns the exit code.

    A failed node names its exit code in its last line: JobSet removes a failed pod with its status, but its lines may
    have been read.
    """
    try:
        with one_line_errors():
            check_pod(parallel)
        code = work()
    except SystemExit as end:  # its message was printed
        code = end.code if isinstance(end.code, int) else CRASH
    if code:
        warn(f"{ENDED}{code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
