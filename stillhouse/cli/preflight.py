"""`stillhouse preflight`: checks whether this machine can run a step, and if not, says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core import context
from stillhouse.core.terminal import show
from stillhouse.kubeflow.preflight import Requirements, check, read_requirements, take_readings
from stillhouse.pipeline.parser import Parser, flag

ABOUT = """\
Pods of a Kubeflow pipeline run these checks themselves if their placement sets `preflight: true`. With more than one
GPU, the command starts one process per GPU, which sum numbers over NCCL (an all-reduce), as training does.

examples:
  stillhouse preflight --gpus 1 --shared-memory 16 --free 100
  stillhouse preflight --gpus 8 --shared-memory 16
  stillhouse preflight --work /volume"""


def main(argv: Sequence[str]) -> int:
    asked = read_requirements() or Requirements()
    parser = Parser("preflight", "Checks shared memory, disk, driver and GPUs before a long step.", ABOUT)
    flag(parser, "--gpus N", "require at least N GPUs", int, asked.gpus)
    flag(parser, "--shared-memory GIB", "require a /dev/shm of this size", float, asked.shared_memory_gib)
    flag(parser, "--free GIB", "require this much free disk space in the work folder", float, asked.free_gib)
    flag(parser, "--work FOLDER", f"the work folder (default: ${context.WORK_ROOT} or .stillhouse/work)", Path)
    arguments = parser.parse(argv)
    wanted = Requirements(gpus=arguments.gpus, shared_memory_gib=arguments.shared_memory, free_gib=arguments.free)
    show(check(wanted, take_readings(arguments.work or context.work_root(), together=wanted.gpus)))
    return 0
