"""`stillhouse preflight`: says whether this machine will do for a step, and if not, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillhouse import context
from stillhouse.kubernetes.preflight import Requirements, check, read_requirements, take_readings
from stillhouse.terminal import show
from stillhouse.workflow.parser import Parser

ABOUT = """\
A pod of a Kubeflow pipeline does the same by itself where its placement says `preflight: true`. With more than one
GPU, a process on each adds up numbers with the others, as trainings do.

examples:
  stillhouse preflight --gpus 1 --shared-memory 16 --free 100
  stillhouse preflight --gpus 8 --shared-memory 16
  stillhouse preflight --work /volume"""


def main(argv: Sequence[str]) -> int:
    asked = read_requirements() or Requirements()
    parser = Parser("preflight", "Looks at shared memory, disk, driver and GPUs before a long step.", ABOUT)
    parser.add_argument("--gpus", type=int, default=asked.gpus, metavar="N", help="at least this many GPUs")
    parser.add_argument(
        "--shared-memory", type=float, default=asked.shared_memory_gib, metavar="GIB", help="size of /dev/shm"
    )
    parser.add_argument(
        "--free", type=float, default=asked.free_gib, metavar="GIB", help="free disk of the work folder"
    )
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help=f"default: ${context.WORK_ROOT} or .stillhouse/work"
    )
    arguments = parser.parse(argv)
    wanted = Requirements(gpus=arguments.gpus, shared_memory_gib=arguments.shared_memory, free_gib=arguments.free)
    show(check(wanted, take_readings(arguments.work or context.work_root(), together=wanted.gpus)))
    return 0
