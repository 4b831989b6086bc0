"""The settings of every step that runs a trained model over texts. No torch here: step modules read it."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting


@dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """Precision and batch size of encoding and scoring."""

    precision: str = setting(
        "auto", "auto = bf16 where the processor or GPU computes in it, else fp32", choices=("auto", "fp32", "bf16")
    )
    batch_tokens: int = setting(8192, "padded tokens computed at once", minimum=1)
