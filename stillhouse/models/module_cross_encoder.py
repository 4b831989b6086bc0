"""Cross-encoders of several of sentence-transformers' modules, which score but are not trained here.

| model | modules |
|---|---|
| a decoder that answers yes or no, such as Qwen3-Reranker | Transformer, LogitScore |
| an encoder with layers of its own for the score | Transformer, Pooling, Dense |

Shape suffixes: P pairs, L tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from stillhouse.core.errors import InputError
from stillhouse.corpus.titles import joined_by_colon
from stillhouse.models.encoder import TOKENIZING, TokenizedTexts
from stillhouse.models.pair_scores import PairScorer, PairTexts
from stillhouse.models.settings import MODULES
from stillhouse.models.towers import KINDS, LOADED_AS, refuse_unknown
from stillhouse.models.transformer import reading

GENERATES = ("text-generation", "any-to-any")
"""The tasks of a Transformer that answers with a token after the last one, so its texts are padded on the left."""


class ModuleCrossEncoder(PairScorer):
    """As `CrossEncoder`, by the modules of a folder of sentence-transformers, including their chat template."""

    def __init__(self, scorer: Any, raw: bool) -> None:
        super().__init__()
        self.scorer = scorer
        self.activation = nn.Identity() if raw else scorer.activation_fn
        self._generates = getattr(scorer[0], "transformer_task", "") in GENERATES
        self._modality = "text"

    @classmethod
    def open(cls, folder: Path, raw: bool) -> Self:
        """Raises `InputError` for modules that could run code or give no score, and for a damaged folder."""
        from sentence_transformers import CrossEncoder as Scorer

        refuse_unknown(folder, (*KINDS, "LogitScore"))
        with reading(folder / MODULES):
            scorer = Scorer(str(folder), device="cpu", local_files_only=True, model_kwargs=LOADED_AS)
            model = cls(scorer.eval(), raw)
            pairs = model.pairs(["a"], ["b"])
            with torch.inference_mode():
                scores_P = model(*pairs.batch([0], torch.device("cpu")))
        if scores_P.shape != (1,):
            raise InputError(f"{folder} does not give one score per pair; give another cross-encoder")
        return model

    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """Tokenize pairs as the folder says; a passage of a corpus with `titles: sep` is read as `title: text`."""
        given = [(query, joined_by_colon(passage)) for query, passage in zip(queries, passages, strict=True)]
        prompt = self.scorer.prompts.get(self.scorer.default_prompt_name)
        with TOKENIZING:
            features = self.scorer.preprocess(given, prompt=prompt)
        self._modality = features.get("modality", "text")
        kept_PL = features["attention_mask"].bool() if given else []
        types_PL = features.get("token_type_ids")
        ids = [row[kept].tolist() for row, kept in zip(features.get("input_ids", []), kept_PL)]
        types = [[0] * len(each) for each in ids]
        if types_PL is not None:
            types = [row[kept].tolist() for row, kept in zip(types_PL, kept_PL)]
        return PairTexts(TokenizedTexts(ids, self.scorer.tokenizer.pad_token_id or 0), TokenizedTexts(types, 0))

    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """Raw scores [P], float32; the three int64 tensors are those of `PairTexts.batch`."""
        features: dict[str, Any] = {"modality": self._modality}
        if self._generates:
            length = mask_PL.shape[1]
            padding_P1 = length - mask_PL.sum(1, keepdim=True)
            place_PL = (torch.arange(length, device=mask_PL.device) - padding_P1) % length
            ids_PL, mask_PL = ids_PL.gather(1, place_PL), mask_PL.gather(1, place_PL)
            features["logits_to_keep"] = 1
        elif "token_type_ids" in self.scorer.tokenizer.model_input_names:
            features["token_type_ids"] = types_PL
        features |= {"input_ids": ids_PL, "attention_mask": mask_PL}
        for module in self.scorer:
            features = module(features)
        return features["scores"].float().squeeze(-1)

    def save(self, folder: Path) -> None:
        self.scorer.save_pretrained(str(folder), create_model_card=False)
