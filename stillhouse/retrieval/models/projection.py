"""Stores the linear layer on the pooled vector (Chang et al. §4.1) as a sentence-transformers `Dense` module."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from stillhouse.artifacts import write_json
from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import WEIGHTS, read_tensors, shapes_of
from stillhouse.retrieval.models.saved_files import REMEDY

PROJECTION = "2_Dense"
"""The folder of the projection within an encoder folder."""
PREFIX = "linear."


def write_projection(folder: Path, layer: nn.Linear, activation: type[nn.Module] = nn.Identity) -> None:
    """Write `layer` and its activation as a `Dense` module into `folder`, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "config.json",
        {
            "in_features": layer.in_features,
            "out_features": layer.out_features,
            "bias": layer.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__qualname__}",
        },
    )
    state = {f"{PREFIX}{name}": value.detach().cpu().contiguous() for name, value in layer.state_dict().items()}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})


def read_projection(folder: Path, inputs: int, outputs: int | None = None) -> nn.Linear:
    """Read the layer that `write_projection` wrote into `folder`, from width `inputs` to width `outputs`.

    Raises `InputError` if it is missing, damaged, or of another width.
    """
    path = folder / WEIGHTS
    weight, bias = f"{PREFIX}weight", f"{PREFIX}bias"
    biased = path.is_file() and bias in shapes_of(path)
    shapes: dict[str, tuple[int | None, ...]] = {weight: (outputs, inputs)}
    state = read_tensors(path, shapes | ({bias: (outputs,)} if biased else {}))
    width = len(state[weight])
    if biased and len(state[bias]) != width:
        raise InputError(f"{path}: {bias} is {len(state[bias])} wide and {weight} {width}; {REMEDY}")
    layer = nn.Linear(inputs, width, bias=biased)
    layer.load_state_dict({name.removeprefix(PREFIX): value for name, value in state.items()})
    return layer
