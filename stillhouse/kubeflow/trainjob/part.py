"""The program on each node of a `TrainJob` whose nodes share parts: it does this node's parts one after the other.

    python3 -m stillhouse.kubeflow.trainjob.part FOLDER [OWN]

Trainer sets torchrun's own environment variables (`PET_…`): the number of nodes and the number of this one. The first
OWN parts, none by default, belong to the pod that started the job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stillhouse.core.errors import CRASH
from stillhouse.core.terminal import warn
from stillhouse.kubeflow.pods.in_pod import one_line_errors
from stillhouse.kubeflow.pods.pod_preflight import check_pod
from stillhouse.kubeflow.trainjob.last_words import ENDED
from stillhouse.kubeflow.trainjob.parts import NODE, NODES, PROCESSES, Parts, do_parts


def main(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Does this node's parts and returns the exit code of the first that failed, or 0.

    A failed node names its exit code in its last line, as in `stillhouse.kubeflow.trainjob.node`.
    """
    folder, *own = argv
    parts = Parts(Path(folder), int(own[0]) if own else 0)
    node, nodes = int(environment.get(NODE, "0")), int(environment.get(NODES, "1"))
    processes = int(environment.get(PROCESSES, "1"))
    code = 0
    try:
        with one_line_errors():
            check_pod()
        code = do_parts(parts, parts.of_nodes[node::nodes], processes, environment)
    except SystemExit as end:  # its message was printed
        code = end.code if isinstance(end.code, int) else CRASH
    if code:
        warn(f"{ENDED}{code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
