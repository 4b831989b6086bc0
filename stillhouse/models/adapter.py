"""The change that a training with LoRA made, in the files that peft reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from safetensors.torch import save_file
from torch import Tensor


@dataclass(frozen=True)
class Adapter:
    """A trained change: peft's configuration and tensors. `PeftModel.from_pretrained` adds it to its base model, which
    `frozen_weights: bf16` has rounded."""

    config: Any
    change: dict[str, Tensor]

    @classmethod
    def of(cls, model: Any) -> Self:
        """The change of a `PeftModel`, in float32."""
        from peft import get_peft_model_state_dict

        config = model.active_peft_config
        config.base_model_name_or_path = None  # a place on this machine
        config.target_modules = sorted(config.target_modules)  # a set has another order in each process
        change = {name: tensor.detach().cpu().float() for name, tensor in get_peft_model_state_dict(model).items()}
        return cls(config, change)


def write_adapters(folder: Path, adapters: Sequence[Adapter]) -> None:
    """Writes `adapter/`, or for several Transformers `adapter/0/`, `adapter/1/` and so on."""
    for number, adapter in enumerate(adapters):
        place = folder / "adapter" / (str(number) if len(adapters) > 1 else "")
        adapter.config.save_pretrained(place)
        save_file(adapter.change, place / "adapter_model.safetensors")
