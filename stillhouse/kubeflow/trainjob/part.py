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

from stillhouse.kubeflow.trainjob.node import end_of_node
from stillhouse.kubeflow.trainjob.parts import NODE, NODES, PROCESSES, Parts, do_parts


def main(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Does this node's parts and returns the exit code of the first that failed, or 0."""
    folder, *own = argv
    parts = Parts(Path(folder), int(own[0]) if own else 0)
    node, nodes = int(environment.get(NODE, "0")), int(environment.get(NODES, "1"))
    processes = int(environment.get(PROCESSES, "1"))
    return end_of_node(lambda: do_parts(parts, parts.of_nodes[node::nodes], processes, environment))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
