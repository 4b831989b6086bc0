"""Draws several answers to each of a batch of prompts from a language model, with keys and values kept between tokens.

A decoder reads a prompt once, whatever the number of its answers: these are columns of the prompt's row, each of which
attends to the prompt and to its own tokens alone. What all prompts of a batch begin with, such as examples, is read
once. Rows whose answers have all ended leave the batch.

Shape suffixes: B prompts, S answers of a prompt, L tokens of a prompt, T tokens of an answer, V vocabulary, R rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

LIKELIEST = 64
"""The tokens that are first looked at for a nucleus; more if these are not enough."""


@dataclass(frozen=True)
class Drawn:
    """The answers to prompts: their tokens without the one that ended them, and what is known of each.

    `log_likelihood_BS` is the mean over an answer's tokens and its end, at temperature 1. An answer that has not
    `ended` reached the limit.
    """

    ids: list[list[list[int]]]
    log_likelihood_BS: NDArray[np.float32]
    ended_BS: NDArray[np.bool_]


@torch.inference_mode()
def draw(
    model: Any,
    prompts: Sequence[Sequence[int]],
    chance_BST: NDArray[np.float64],
    temperature: float,
    top_p: float,
    stop_ids: Sequence[int],
) -> Drawn:
    """Answers to the prompts, by nucleus sampling (Holtzman et al. 2020) or, with temperature 0, the likeliest tokens.

    `chance_BST` has uniform numbers in [0, 1) for every token, so an answer depends on its own numbers alone.
    """
    rows, number, limit = chance_BST.shape
    device = model.device
    reader = (_EncoderDecoder if model.config.is_encoder_decoder else _Decoder)(model, prompts, number)
    stop = torch.tensor(sorted(stop_ids), device=device)
    chance = torch.from_numpy(chance_BST).to(device, torch.float32)
    token_BST = torch.full((rows, number, limit), -1, device=device)
    sum_BS = torch.zeros(rows, number, device=device)
    count_BS = torch.zeros(rows, number, dtype=torch.long, device=device)
    ended_BS = torch.zeros(rows, number, dtype=torch.bool, device=device)
    row_R, logits_RSV = torch.arange(rows, device=device), reader.start().float()
    for place in range(limit):
        token_RS = _chosen(logits_RSV, chance[row_R, :, place], temperature, top_p)
        value_RS = logits_RSV.gather(2, token_RS[:, :, None])[:, :, 0] - logits_RSV.logsumexp(2)
        going_RS, ends_RS = ~ended_BS[row_R], torch.isin(token_RS, stop)
        sum_BS[row_R] += value_RS * going_RS
        count_BS[row_R] += going_RS
        token_BST[row_R, :, place] = torch.where(going_RS & ~ends_RS, token_RS, -1)
        ended_BS[row_R] |= ends_RS
        going_R = (~ended_BS[row_R]).any(dim=1)
        left = int(going_R.sum())
        if not left or place + 1 == limit:
            break
        if 4 * left <= 3 * len(row_R):  # keeping fewer rows copies what is kept of them
            kept_R = going_R.nonzero()[:, 0]
            reader.keep(kept_R)
            row_R, token_RS = row_R[kept_R], token_RS[kept_R]
        logits_RSV = reader.next(token_RS).float()
    ids = [[[token for token in answer if token >= 0] for answer in row] for row in token_BST.tolist()]
    return Drawn(ids, (sum_BS / count_BS).cpu().numpy(), ended_BS.cpu().numpy())


def _chosen(logits_RSV: Tensor, chance_RS: Tensor, temperature: float, top_p: float) -> Tensor:
    """A token of each row's nucleus: the likeliest tokens that together have the probability `top_p`."""
    if temperature == 0:
        return logits_RSV.argmax(dim=2)
    scaled_RSV = logits_RSV / temperature
    total_RS1 = scaled_RSV.logsumexp(2, keepdim=True)
    count, vocabulary = LIKELIEST, scaled_RSV.shape[2]
    while True:
        count = min(count, vocabulary)
        best_RSK, token_RSK = scaled_RSV.topk(count, dim=2)
        share_RSK = (best_RSK - total_RS1).exp()
        if count == vocabulary or bool((share_RSK.sum(2) >= top_p).all()):
            break
        count *= 8
    before_RSK = share_RSK.cumsum(2) - share_RSK
    upto_RSK = (share_RSK * (before_RSK < top_p)).cumsum(2)
    place_RS = (upto_RSK <= chance_RS[:, :, None] * upto_RSK[:, :, -1:]).sum(2, keepdim=True)
    return token_RSK.gather(2, place_RS.clamp(max=count - 1))[:, :, 0]


def _padded(texts: Sequence[Sequence[int]], device: torch.device, left: bool) -> tuple[Tensor, Tensor]:
    """Ids int64 [B, L] of texts that end together, or begin together, and which places are theirs."""
    rows = [torch.tensor(text, dtype=torch.long) for text in texts]
    ids_BL = pad_sequence(rows, True, padding_value=-1, padding_side="left" if left else "right").to(device)
    return ids_BL.clamp(min=0), ids_BL >= 0


class _Decoder:
    """`start` returns the logits [B, S, V] of the first tokens, and `next` those after given ones."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], number: int) -> None:
        self._model, self._prompts, self._number = model, prompts, number
        self._cache = DynamicCache()

    def start(self) -> Tensor:
        prompts, device = self._prompts, self._model.device
        shared = next((place for place, tokens in enumerate(zip(*prompts)) if len(set(tokens)) > 1), 0)
        if shared:
            ids_1L = torch.tensor([list(prompts[0][:shared])], device=device)
            self._model(input_ids=ids_1L, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
            self._cache.batch_repeat_interleave(len(prompts))
        ids_BL, own_BL = _padded([prompt[shared:] for prompt in prompts], device, left=True)
        kept_BL = torch.cat([own_BL.new_ones(len(prompts), shared), own_BL], dim=1)
        logits_B1V = self._model(
            input_ids=ids_BL,
            attention_mask=kept_BL.long(),
            position_ids=(kept_BL.cumsum(1) - 1).clamp(min=0)[:, shared:],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        self._position_B = kept_BL.sum(dim=1)
        self._seen_BSL = kept_BL[:, None].expand(-1, self._number, -1)
        return logits_B1V.expand(-1, self._number, -1)

    def next(self, token_BS: Tensor) -> Tensor:
        own_SS = torch.eye(self._number, dtype=torch.bool, device=token_BS.device)
        self._seen_BSL = torch.cat([self._seen_BSL, own_SS.expand(len(token_BS), -1, -1)], dim=2)
        dtype = self._model.dtype
        hidden_BSL = torch.zeros(self._seen_BSL.shape, dtype=dtype, device=token_BS.device)
        hidden_BSL.masked_fill_(~self._seen_BSL, torch.finfo(dtype).min)
        logits_BSV: Tensor = self._model(
            input_ids=token_BS,
            attention_mask=hidden_BSL[:, None],
            position_ids=self._position_B[:, None].expand_as(token_BS),
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        self._position_B = self._position_B + 1
        return logits_BSV

    def keep(self, row_R: Tensor) -> None:
        self._cache.batch_select_indices(row_R)
        self._seen_BSL, self._position_B = self._seen_BSL[row_R], self._position_B[row_R]


class _EncoderDecoder:
    """The encoder reads a prompt once, and each answer has a row of the decoder."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], number: int) -> None:
        self._model, self._number = model, number
        self._cache: Any = None
        ids_BL, kept_BL = _padded(prompts, model.device, left=False)
        states_BLD = model.get_encoder()(input_ids=ids_BL, attention_mask=kept_BL.long()).last_hidden_state
        self._states, self._kept = (each.repeat_interleave(number, 0) for each in (states_BLD, kept_BL.long()))

    def start(self) -> Tensor:
        first = self._model.config.decoder_start_token_id
        return self.next(torch.full((len(self._kept) // self._number, self._number), first, device=self._kept.device))

    def next(self, token_BS: Tensor) -> Tensor:
        output = self._model(
            encoder_outputs=(self._states,),
            attention_mask=self._kept,
            decoder_input_ids=token_BS.reshape(-1, 1),
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache = output.past_key_values
        return output.logits.view(*token_BS.shape, -1)

    def keep(self, row_R: Tensor) -> None:
        answer = (row_R[:, None] * self._number + torch.arange(self._number, device=row_R.device)).flatten()
        self._cache.batch_select_indices(answer)
        self._states, self._kept = self._states[answer], self._kept[answer]
