"""The linear layer on the pooled vector (004 §4.1) as a file: the form of sentence-transformers' `Dense` module."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import nn

from stillhouse.artifacts import write_json

PROJECTION = "2_Dense"
"""The folder of the projection within an encoder folder."""
PREFIX = "linear."


def write_projection(folder: Path, layer: nn.Linear, activation: type[nn.Module] = nn.Identity) -> None:
    """Writes `layer`, and what follows it, as a `Dense` module into `folder`, which is made."""
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
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def read_projection(folder: Path) -> nn.Linear:
    """The layer that `write_projection` wrote into `folder`."""
    state = load_file(folder / "model.safetensors")
    weight_PD = state[f"{PREFIX}weight"]
    layer = nn.Linear(weight_PD.shape[1], weight_PD.shape[0], bias=f"{PREFIX}bias" in state)
    layer.load_state_dict({name.removeprefix(PREFIX): value for name, value in state.items()})
    return layer
