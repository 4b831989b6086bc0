"""Reads the files of a model folder with care: any fault in a file is reported as bad input that names the file.

The form of JSON and safetensors files is checked, and that all numbers are finite. Errors that a library raises over a
user's file become `InputError`. Errors about a lack of memory or disk space do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from stillhouse.errors import RUST_OS_ERROR, InputError
from stillhouse.retrieval.models.saved_files import INDEX, REMEDY, WEIGHTS, json_object, refuse_pickle

OUT_OF_MEMORY = "DefaultCPUAllocator"
"""The start of PyTorch's message when a CPU runs out of memory, which is a plain RuntimeError."""
LONGEST_REASON = 200


@contextmanager
def reading(file: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turn whatever a library raises while it reads `file` into `InputError`.

    Libraries raise nearly anything over a damaged file: KeyError, TypeError, AssertionError, plain Exception. Errors
    with a system error number and a lack of memory are not the file's fault and pass through.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        message = str(error)
        of_the_system = isinstance(error, OSError) and error.errno is not None
        if of_the_system or OUT_OF_MEMORY in message or RUST_OS_ERROR.search(message):
            raise
        reason = " ".join([type(error).__name__ + ":", *message.split()])
        raise InputError(f"{file} cannot be read ({reason[:LONGEST_REASON].rstrip(':')}); {remedy}") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a Hugging Face model folder.

    Raises `InputError` if there are none, for example because the weights are a pickle, which could run code.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        files = json_object(folder / INDEX).get("weight_map")
        names = set(files.values()) if isinstance(files, dict) and all(map(_is_name, files.values())) else set()
        if not names:
            raise InputError(f"{folder / INDEX} names no weight files; {REMEDY}")
        for name in sorted(names):
            if not (folder / name).is_file():
                raise InputError(f"{folder / name} is missing, but {INDEX} names it; {REMEDY}")
        return [folder / name for name in sorted(names)]
    refuse_pickle(folder)
    raise InputError(f"{folder / WEIGHTS} is missing; {REMEDY}")


def _is_name(value: object) -> bool:
    """Whether a value names a file in the folder itself."""
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, from its header alone. Raises `InputError` for a damaged file."""
    with reading(path), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, Tensor]:
    """The tensors named in `shapes` from a safetensors file, in float32. None in a shape matches any size.

    Raises `InputError` for a file that is missing or damaged, for a tensor that is missing or has another shape, and
    for numbers that are not finite.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    found = shapes_of(path)
    for name, wanted in shapes.items():
        own = found.get(name)
        if own is None or len(own) != len(wanted) or any(w not in (None, size) for size, w in zip(own, wanted)):
            asked = "x".join("any" if size is None else str(size) for size in wanted)
            has = "lacks it" if own is None else f"has {shown(own)}"
            raise InputError(f"{path}: {name} must have the shape {asked}, but the file {has}; {REMEDY}")
    with reading(path), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in shapes}
    refuse_not_finite(tensors, path)
    return tensors


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises `InputError` for weights that are NaN or infinite; `path` is their file."""
    for name, tensor in tensors.items():
        # A sum is a tenth of the work. It is not finite if any number is not, and rarely otherwise.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            wrong = "NaN" if tensor.isnan().any() else "infinite"
            raise InputError(f"{path}: weights of {name} are {wrong}; train the model again, or {REMEDY}")


def shown(shape: tuple[int, ...] | torch.Size) -> str:
    """A shape in readable form: 30522x384."""
    return "x".join(map(str, shape)) or "a single number"
