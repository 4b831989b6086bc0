"""Checks a machine before a long step starts on it: shared memory, disk, driver, GPUs and how they work together.

A pod that cannot do its work should say so in its first seconds, with the remedy, instead of failing after an hour
with a library's error. The measurements (`Readings`) and the conclusions (`problems`) are separate, so that every
remedy can be tested without a GPU.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.collective import failure_together

REQUIREMENTS = "STILLHOUSE_PREFLIGHT"
"""Environment variable that turns the preflight on: `Requirements` as JSON, set by a placement."""
SHARED_MEMORY = Path("/dev/shm")
GIB = 1024**3
SLACK = 0.95
"""A file system reports slightly less than the requested size."""


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a step needs from its machine."""

    gpus: int = 0
    shared_memory_gib: float = 0.0
    free_gib: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What the machine has. `driver` and `nccl` are versions, or "" if missing."""

    shared_memory_gib: float
    free_gib: float
    writable: bool
    work: str
    cuda_build: str
    """The CUDA version that PyTorch was built for; "" for a build without CUDA."""
    driver: str
    gpus: int
    names: tuple[str, ...] = ()
    nccl: str = ""
    failure: str = ""
    """The error of a first computation on the GPUs, if it failed."""
    together: int = 0
    """How many GPUs took part in the test sum."""
    apart: str = ""
    """Why the test sum failed."""


def read_requirements(environment: Mapping[str, str] = os.environ) -> Requirements | None:
    """The requirements in the environment, or None if there are none."""
    text = environment.get(REQUIREMENTS)
    return Requirements(**json.loads(text)) if text else None


def with_gpus(text: str, count: int) -> str:
    """A placement's requirements with the run's GPU count; unchanged if they ask for no GPU."""
    asked = read_requirements({REQUIREMENTS: text})
    return json.dumps(asdict(replace(asked, gpus=count))) if asked and asked.gpus else text


def problems(wanted: Requirements, found: Readings) -> list[str]:
    """Every problem that would stop the step later, each with its remedy."""
    lacking = []
    if not found.writable:
        lacking.append(
            f"user {os.getuid()} cannot write to the work folder {found.work}: give the volume to that user or its "
            "group, or set `user` and `group` of the placement to the volume's owner"
        )
    if found.free_gib < wanted.free_gib:
        lacking.append(
            f"the work folder {found.work} has {found.free_gib:.1f} GiB left, but needs {wanted.free_gib:g}: remove "
            "old folders there, or enlarge the volume"
        )
    if found.shared_memory_gib < wanted.shared_memory_gib * SLACK:
        lacking.append(
            f"{SHARED_MEMORY} has {found.shared_memory_gib:.2f} GiB, but needs {wanted.shared_memory_gib:g}: mount an "
            "emptyDir with medium Memory there (`shared_memory` of the placement)"
        )
    return lacking + (_gpu_problems(wanted, found) if wanted.gpus else [])


def _gpu_problems(wanted: Requirements, found: Readings) -> list[str]:
    if not found.cuda_build:
        return ["PyTorch in this image is built without CUDA: set the pipeline's parameter `image` to the GPU image"]
    if not found.driver:
        problem = (
            "no NVIDIA driver is visible: ask for an accelerator (`accelerator_type`, `accelerator_count`), and make "
            "sure that the node has the device plugin and container runtime for its GPUs"
        )
        return [problem]
    if found.gpus < wanted.gpus:
        problem = (
            f"{found.gpus} GPUs can be used (driver {found.driver}, PyTorch for CUDA {found.cuda_build}), but "
            f"{wanted.gpus} are needed: raise `accelerator_count`, or use a node with a newer driver; with MIG a "
            "process sees only one GPU instance, so set `accelerator_count` to 1 there"
        )
        return [problem]
    several = []
    if found.failure:
        several.append(
            f"a first computation on {', '.join(found.names)} failed ({found.failure}): the image's PyTorch is for "
            f"CUDA {found.cuda_build}, the driver is {found.driver}; use a newer driver, another GPU type or image"
        )
    if found.gpus > 1 and not found.nccl:
        several.append(
            f"{found.gpus} GPUs but no NCCL: use an image whose PyTorch has it, or set `accelerator_count` to 1"
        )
    if found.apart:
        several.append(
            f"{found.together} GPUs ({', '.join(found.names)}) cannot work together over NCCL {found.nccl} "
            f"({found.apart}): give {SHARED_MEMORY} more room (`shared_memory` of the placement); see what NCCL logs "
            "with NCCL_DEBUG=INFO in the placement's `environment`; if the GPUs cannot reach each other's memory "
            "(`nvidia-smi topo -p2p r`; ACS in the node's BIOS prevents it), try NCCL_P2P_DISABLE=1 there; or "
            "set `accelerator_count` to 1"
        )
    return several


def take_readings(work: Path, together: int = 0, backend: str = "nccl") -> Readings:
    """Measures this machine; `work` is the folder for checkpoints and vectors.

    If `together` is more than 1, that many processes sum numbers over `backend`.
    """
    import torch

    cuda = torch.version.cuda or ""
    gpus = torch.cuda.device_count() if cuda else 0
    names: tuple[str, ...] = ()
    failure = nccl = ""
    if gpus:
        try:
            names = tuple(torch.cuda.get_device_name(number) for number in range(gpus))
            for number in range(gpus):
                torch.ones(8, device=f"cuda:{number}").sum().item()
        except RuntimeError as error:
            failure = str(error).splitlines()[0]
        if torch.distributed.is_available() and torch.distributed.is_nccl_available():
            nccl = ".".join(map(str, torch.cuda.nccl.version()))
    able = backend != "nccl" or (gpus >= together and nccl and not failure)
    tried = together if together > 1 and able else 0
    return Readings(
        shared_memory_gib=shutil.disk_usage(SHARED_MEMORY).total / GIB if SHARED_MEMORY.is_dir() else 0.0,
        free_gib=shutil.disk_usage(_existing(work)).free / GIB,
        writable=_can_make(work),
        work=str(work),
        cuda_build=cuda,
        driver=driver_version() or ("unknown" if gpus else ""),
        gpus=gpus,
        names=names,
        nccl=nccl,
        failure=failure,
        together=tried,
        apart=failure_together(tried, backend) if tried else "",
    )


def driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of the NVIDIA kernel driver, or "" if there is none."""
    if not path.is_file():
        return ""
    words = path.read_text(encoding="utf-8", errors="replace").split()
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else "unknown"


def _existing(path: Path) -> Path:
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return path


def _can_make(path: Path) -> bool:
    return os.access(_existing(path), os.W_OK | os.X_OK)


def check(wanted: Requirements, found: Readings) -> str:
    """One line about a suitable machine. Raises `InputError` with every problem and its remedy."""
    found_problems = problems(wanted, found)
    if found_problems:
        raise InputError(
            "this machine does not meet the requirements:\n" + "\n".join(f"  - {problem}" for problem in found_problems)
        )
    gpus = f"{found.gpus} GPUs ({', '.join(found.names)}; driver {found.driver}, CUDA {found.cuda_build}"
    gpus += f", NCCL {found.nccl}" if found.nccl else ""
    gpus += ", which work together)" if found.together else ")"
    room = f"{found.free_gib:.0f} GiB free in {found.work}, {found.shared_memory_gib:.1f} GiB of shared memory"
    return f"{gpus if found.gpus else 'no GPU'}; {room}"
