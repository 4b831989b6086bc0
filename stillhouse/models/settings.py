"""Settings of models and of what they compute. No torch here: step modules read them to declare their flags."""

from dataclasses import dataclass

from stillhouse.core.config import setting

BATCH_TOKENS = 8192
"""The number of padded tokens that are encoded or scored together: the default of `batch_tokens`."""
QUERY_LENGTH, PASSAGE_LENGTH = 32, 144
"""Tokens of a query and of a passage, special tokens included (SimLM Table 13): the defaults."""
MODULES = "modules.json"
"""Lists how sentence-transformers turns a text into a vector; a bare language model has none."""
NO_MODEL = "none"
"""The model name in `fetch-model` for a part that starts from the run's base model."""
PACKAGE = "package:"
"""How the name of a model in an installed package begins."""


@dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """Precision and batch size of encoding and scoring."""

    precision: str = setting(
        "auto", "auto = bf16 on a CPU or GPU where it is faster, else fp32", choices=("auto", "fp32", "bf16")
    )
    batch_tokens: int = setting(BATCH_TOKENS, "padded tokens in a batch", minimum=1)
