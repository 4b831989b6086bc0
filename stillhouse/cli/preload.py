"""`python -m stillhouse.cli.preload FD PID`: imports what steps that use a model import, and forks for every stage.

FD is a listening socket, PID the `dvc repro` whose stages it serves (`stillhouse.cli.preloaded`).
"""

from __future__ import annotations

import ctypes
import gc
import signal
import socket
import sys

from stillhouse.cli import main
from stillhouse.cli.preloaded import PR_SET_PDEATHSIG, circumstances, serve


def preload() -> None:
    """The imports, which take seconds of the processor."""
    import transformers.modeling_utils  # noqa: F401

    import stillhouse.retrieval.fine_tuning.retriever_training
    import stillhouse.retrieval.models.cross_encoder
    import stillhouse.retrieval.search.hybrid
    import stillhouse.workflow.step_command  # noqa: F401
    from stillhouse.steps.registry import steps

    steps()
    gc.freeze()  # so that no collection copies what the forks share


if __name__ == "__main__":
    given = circumstances()  # before the imports, which may set variables
    kernel = ctypes.CDLL(None)
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # until it serves, it ends with the stage that waits for it
    preload()
    kernel.prctl(PR_SET_PDEATHSIG, 0)
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), main, given))
