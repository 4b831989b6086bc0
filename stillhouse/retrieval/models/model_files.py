"""The files of a model folder, read with suspicion: whatever is wrong in one is bad input, in a sentence that names it.

JSON is checked for its form, safetensors for theirs and for numbers that are finite. What a library raises over a file
of the user's becomes `InputError`; what says that the machine is short of memory or disk does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from stillhouse.errors import RUST_OS_ERROR, InputError

REMEDY = "copy the model folder again, or give one that `stillhouse fetch-model` wrote"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Where a large model's weights are divided into several files: the file of each tensor."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.pkl")
OUT_OF_MEMORY = "DefaultCPUAllocator"
"""What PyTorch's message begins with when there is no more memory: a plain RuntimeError on a CPU."""
LONGEST_REASON = 200


@contextmanager
def reading(file: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turns whatever a library raises while it reads `file` into `InputError`.

    Libraries raise nearly anything over a damaged file: KeyError, TypeError, AssertionError, plain Exception. Errors
    that the system numbers and a lack of memory are none of the file's and pass.
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


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises `InputError` for one that is missing or no JSON."""
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; {REMEDY}") from None


def json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object. Raises `InputError` for any other."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object; {REMEDY}")
    return content


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a Hugging Face model folder.

    Raises `InputError` for a folder that has none, as one whose weights are a pickle, which could run code.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        files = json_object(folder / INDEX).get("weight_map")
        names = set(files.values()) if isinstance(files, dict) and all(map(_is_name, files.values())) else set()
        if not names:
            raise InputError(f"{folder / INDEX} names no files of weights; {REMEDY}")
        for name in sorted(names):
            if not (folder / name).is_file():
                raise InputError(f"{folder / name} is missing, which {INDEX} names; {REMEDY}")
        return [folder / name for name in sorted(names)]
    for name in PICKLES:
        if (folder / name).is_file():
            raise InputError(
                f"{folder / name} is a pickle, which can run code when it is loaded; save the model as {WEIGHTS} with "
                "the `save_pretrained` of transformers"
            )
    raise InputError(f"{folder / WEIGHTS} is missing; {REMEDY}")


def _is_name(value: object) -> bool:
    """Whether a value names a file in the folder itself."""
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, from its header alone. Raises `InputError` for a damaged file."""
    with reading(path), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, float32: those of `shapes`, where None leaves a size open.

    Raises `InputError` for a file that is missing or damaged, lacks one of them or holds it in another shape, and for
    numbers that are not finite.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    found = shapes_of(path)
    for name, wanted in shapes.items():
        own = found.get(name)
        if own is None or len(own) != len(wanted) or any(w not in (None, size) for size, w in zip(own, wanted)):
            asked = "x".join("any" if size is None else str(size) for size in wanted)
            has = "lacks it" if own is None else f"has {shown(own)}"
            raise InputError(f"{path}: {name} must have the shape {asked} and the file {has}; {REMEDY}")
    with reading(path), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in shapes}
    refuse_not_finite(tensors, path)
    return tensors


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises `InputError` for weights that are NaN or infinite; `path` is their file."""
    for name, tensor in tensors.items():
        # A sum is a tenth of the work. It is not finite where a number is not, and seldom else.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            wrong = "NaN" if tensor.isnan().any() else "infinite"
            raise InputError(f"{path}: weights of {name} are {wrong}; train the model again, or {REMEDY}")


def shown(shape: tuple[int, ...] | torch.Size) -> str:
    """A shape as a person reads it: 30522x384."""
    return "x".join(map(str, shape)) or "a single number"
