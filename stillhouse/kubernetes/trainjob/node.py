"""What runs on each node of a `TrainJob`: the preflight, then torchrun, which starts the step's processes.

Trainer says in torchrun's own environment variables (`PET_…`) how many nodes there are, which one this is and where the
first one listens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stillhouse.errors import CRASH
from stillhouse.kubernetes.pods.component import one_line_errors
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.several_processes import torchrun_words
from stillhouse.kubernetes.pods.torchrun import torchrun
from stillhouse.kubernetes.trainjob.last_words import ENDED
from stillhouse.terminal import warn


def main(argv: Sequence[str]) -> int:
    """Runs a step's command line by this node's processes and returns the exit code that says most.

    The last line of a node that fails names its exit code: JobSet removes a failed pod, and what Kubernetes knew of it,
    while its lines may have been read.
    """
    try:
        with one_line_errors():
            check_pod(parallel=True)
        code = torchrun(torchrun_words(argv))
    except SystemExit as end:  # with its sentence said
        code = end.code if isinstance(end.code, int) else CRASH
    if code:
        warn(f"{ENDED}{code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
