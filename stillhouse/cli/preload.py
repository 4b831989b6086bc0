"""`python -m stillhouse.cli.preload FD PID`: imports what steps that use a model import, and forks for every stage.

FD is a listening socket, PID the `dvc repro` whose stages it serves (`stillhouse.cli.preloaded`).
"""

from __future__ import annotations

import gc
import os
import socket
import sys

from stillhouse.cli import main
from stillhouse.cli.preloaded import serve


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
    given, before = socket.socket(fileno=int(sys.argv[1])), dict(os.environ)  # imports may set variables
    preload()
    sys.exit(serve(given, int(sys.argv[2]), main, before))
