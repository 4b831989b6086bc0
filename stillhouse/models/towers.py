"""Towers turn a text's tokens into one vector.

A Transformer with a projection and a bag of words (Chang et al. §4.1, §4.2) have fast paths. Every other model that
`SentenceTransformer` opens is a tower of its own modules:

| model | modules |
|---|---|
| a decoder or an encoder-decoder, such as Qwen3-Embedding or sentence-T5 | Transformer, Pooling, ... |
| LaBSE, EmbeddingGemma, LEAF | layers after the pooling: Dense, LayerNorm |
| two towers of unequal size | Router |
| model2vec, static-retrieval-mrl | StaticEmbedding |

In `stillhouse.json`, the setting `pooling: modules` marks the folder of a model with towers of modules.

Shape suffixes: B texts, L tokens, D width of the vectors, T tokens of all texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.unpadded import can_end_in_first_token
from stillhouse.models.encoder_settings import (
    CONFIG,
    MODEL,
    PASSAGE_PROMPTS,
    QUERY_PROMPT,
    ROUTER,
    SETTINGS,
    TRANSFORMER,
    EncoderSettings,
    Module,
    json_object,
    modules_of,
    refuse_foreign_weights,
    saved_model,
)
from stillhouse.models.model_place import DOCUMENT
from stillhouse.models.pooling import pool
from stillhouse.models.settings import MODULES
from stillhouse.models.transformer import configuration, reading

NORMALIZE, STATIC = "Normalize", "StaticEmbedding"
ROUTERS = ("Router", "Asym")
KINDS = (TRANSFORMER, "Pooling", NORMALIZE, STATIC, "Dense", "LayerNorm", "Dropout", *ROUTERS)
"""The modules that a tower may have; others, such as those for images and sparse vectors, make no vector of a text."""
PUBLISHER = "sentence_transformers."
"""Begins the class names of modules; others could run any code."""
Role = Literal["query", "passage"]
"""The role of a text in a bi-encoder."""
ROUTES: Mapping[Role, str] = {"passage": DOCUMENT, "query": "query"}
"""The roles' names in sentence-transformers; a bag of words has a folder of that name for each tower."""
SAMPLE = "How far is it?"
LOADED_AS: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True}
"""How transformers loads the weights of a folder; pickles could run code."""
BAG_WIDTH = 4096
"""Width of the word embeddings of `BagOfWordsTower`. Chang et al. §4.2 gives only the size of the model, 128 M. This
width, BERT's vocabulary and two layers of width 512 make 127.4 M."""
BAG_HIDDEN = 512


class ModuleTower(nn.Module):
    """The modules of one route, without a last `Normalize`, which `EncoderSettings.normalize` stands for.

    `forward(ids_BL, attention_BL, prompt_tokens) -> vectors_BD`. A pooling with `include_prompt: false` leaves out each
    text's first `prompt_tokens` tokens.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(modules)
        self.tokenizer: PreTrainedTokenizerBase = _tokenizer_of(self.first)

    @property
    def first(self) -> Any:
        return self.steps[0]

    @property
    def encoder(self) -> PreTrainedModel | None:
        """The Transformer; None for a static embedding."""
        return None if kind_of(self.first) == STATIC else self.first.model

    @property
    def adds_special_tokens(self) -> bool:
        """Whether texts get the tokenizer's special tokens; a static embedding averages the words alone."""
        return self.encoder is not None

    def prompt_tokens(self, prompt: str) -> int:
        """The tokens before a text's own, which a pooling may leave out: those of the prompt and before it."""
        encoding = self.tokenizer.backend_tokenizer.encode(prompt)
        ends = [number for number, special in enumerate(encoding.special_tokens_mask) if not special]
        return ends[-1] + 1 if ends else 0

    @property
    def width(self) -> int:
        """Width of the vectors."""
        steps: list[Any] = [step for step in self.steps if hasattr(step, "get_embedding_dimension")]
        return int(steps[-1].get_embedding_dimension())

    def token_states(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The last hidden states [B, L, H]. Only with a Transformer."""
        features = self.first({"input_ids": ids_BL, "attention_mask": attention_BL.long()})
        states_BLH: Tensor = features["token_embeddings"]
        return states_BLH

    def forward(self, ids_BL: Tensor, attention_BL: Tensor, prompt_tokens: int = 0) -> Tensor:
        """Vectors [B, D] of ids int64 [B, L]; attention [B, L] is true or 1 at tokens."""
        if self.encoder is None:
            lengths_B = attention_BL.sum(1)
            features: dict[str, Any] = {
                "input_ids": ids_BL[attention_BL.bool()],
                "offsets": lengths_B.cumsum(0) - lengths_B,
            }
        else:
            features = {"input_ids": ids_BL, "attention_mask": attention_BL.long()}
        if prompt_tokens:
            features["prompt_length"] = prompt_tokens
        for step in self.steps:
            features = step(features)
        return features["sentence_embedding"]

    def about(self) -> list[Any]:
        """What the modules are, in JSON, beside their weights: two towers that differ in it make other vectors."""
        steps: list[Any] = list(self.steps)
        settings = [step.get_config_dict() if hasattr(step, "get_config_dict") else {} for step in steps]
        if self.encoder is not None:
            settings[0] = configuration(self.encoder)
        return [[kind_of(step), of] for step, of in zip(steps, settings)]


def _tokenizer_of(first: Any) -> PreTrainedTokenizerBase:
    """A first module's tokenizer in the form of transformers."""
    if kind_of(first) != STATIC:
        return first.tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=deepcopy(first.tokenizer))


def kind_of(module: nn.Module) -> str:
    return type(module).__name__


def read_modules(folder: Path) -> tuple[dict[Role, ModuleTower], bool]:
    """The towers of a folder by role, and whether their vectors have length 1. No "query" if both roles share one.

    A Hugging Face folder without `modules.json` ends in the last token. Raises `InputError` for unknown modules, for
    pickles, and for files that are damaged or missing.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    refuse_unknown(folder)
    listed = (folder / MODULES).is_file()
    file = folder / (MODULES if listed else CONFIG)
    with reading(file):
        if listed:
            # No module of a folder is code: `refuse_unknown` has read their names.
            opened = SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, trust_remote_code=False, model_kwargs=LOADED_AS
            )
            modules = list(opened)
        else:
            first = Transformer(str(folder), model_kwargs=LOADED_AS, config_kwargs={"local_files_only": True})
            modules = [first, Pooling(first.get_embedding_dimension(), "lasttoken")]
    normalize = kind_of(modules[-1]) == NORMALIZE
    modules = modules[:-1] if normalize else modules
    routes: dict[Role, list[nn.Module]] = {"passage": modules}
    if kind_of(modules[0]) in ROUTERS:
        inside: Any = modules[0]
        if set(ROUTES.values()) - set(inside.sub_modules):
            names = ", ".join(inside.sub_modules)
            raise InputError(
                f"{folder}: its Router has the routes {names}, of which none are for queries and documents; give a "
                "model with the routes `query` and `document`"
            )
        routes = {role: [*inside.sub_modules[route], *modules[1:]] for role, route in ROUTES.items()}
        if all(kind_of(steps[-1]) == NORMALIZE for steps in routes.values()):
            routes, normalize = {role: steps[:-1] for role, steps in routes.items()}, True
    for module in (step for steps in routes.values() for step in steps):
        tokenizer = getattr(module, "tokenizer", None)
        if isinstance(tokenizer, PreTrainedTokenizerBase) and tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token  # no model reads padding
    towers = {role: ModuleTower(steps) for role, steps in routes.items()}
    for role, tower in towers.items():
        _refuse_unusable(file, role, tower)
    if len({tower.width for tower in towers.values()}) > 1:
        raise InputError(f"{folder}: its routes make vectors of different widths, which cannot be compared")
    return towers, normalize or saved_model(folder).get("similarity_fn_name") == "cosine"


def _refuse_unusable(file: Path, role: Role, tower: ModuleTower) -> None:
    """Refuse texts that are prepared otherwise than by their tokenizer."""
    features = tower.first.preprocess([SAMPLE])
    ids = tower.tokenizer.backend_tokenizer.encode(SAMPLE, add_special_tokens=tower.adds_special_tokens).ids
    if features["input_ids"].flatten().tolist() != ids:
        raise InputError(
            f"{file.parent}: the tokens of a {role} are not those of its tokenizer alone, as with a chat template, "
            "which is not supported; give a copy of the folder without it (chat_template.jinja)"
        )


def refuse_unknown(folder: Path, kinds: Sequence[str] = KINDS) -> None:
    """Raises `InputError` for modules that could run code or are not of `kinds`, and for weights that are pickles."""
    listed = [(folder / MODULES, module) for module in modules_of(folder)]
    for path in sorted(folder.rglob(ROUTER)):
        types = json_object(path).get("types")
        inside = types if isinstance(types, dict) else {}
        listed += [(path, Module(str(kind), str(place))) for place, kind in inside.items()]
    for path, module in listed:
        if module.kind not in kinds:
            raise InputError(
                f"{path}: the module {module.kind} cannot be opened; give a model whose modules are of "
                f"{', '.join(kinds)}"
            )
        if not module.type.startswith(PUBLISHER):
            raise InputError(f"{path} names {module.type}: code from a model folder is never run; use another model")
        refuse_foreign_weights(folder / module.path)
    refuse_foreign_weights(folder)


def write_modules_folder(folder: Path, towers: Mapping[Role, ModuleTower], settings: EncoderSettings) -> None:
    """Write towers by role as a folder for `SentenceTransformer`, with the settings of both roles."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Router

    steps: dict[Role, list[Any]] = {role: list(tower.steps) for role, tower in towers.items()}
    lengths: dict[Role, int] = {"query": settings.query_length, "passage": settings.passage_length}
    for first, *_ in steps.values():
        if kind_of(first) != STATIC:
            first.tokenizer.backend_tokenizer.no_truncation()
            # Routes may share a Transformer, which has one length.
            first.max_seq_length = max(lengths[role] for role, of in steps.items() if of[0] is first)
    modules = steps["passage"]
    if "query" in steps:
        modules = [Router.for_query_document(steps["query"], steps["passage"])]
    prompts = {QUERY_PROMPT: settings.query_prompt, PASSAGE_PROMPTS[0]: settings.passage_prompt}
    model = SentenceTransformer(
        modules=[*modules, *([Normalize()] if settings.normalize else [])],
        prompts=prompts if any(prompts.values()) else None,
        similarity_fn_name="cosine" if settings.normalize else "dot",
        truncate_dim=settings.truncate_dim,
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    write_json(folder / MODEL, json_object(folder / MODEL) | {"__version__": {}})  # no versions: equal bytes later
    write_json(folder / SETTINGS, asdict(settings))


class TransformerTower(nn.Module):
    """Pools hidden states in float32, then applies an optional linear layer (Chang et al. 2020 §4.1)."""

    def __init__(self, encoder: PreTrainedModel, pooling: str, projection: nn.Linear | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.projection = projection
        alone = pooling == "cls" and can_end_in_first_token(encoder)
        self._options = {"first_token_alone": True} if alone else {}

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.projection.out_features if self.projection is not None else int(self.encoder.config.hidden_size)

    def token_states(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The last hidden states [B, L, H]."""
        states_BLH: Tensor = self.encoder(input_ids=ids_BL, attention_mask=attention_BL.long()).last_hidden_state
        return states_BLH

    def forward(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """Vectors [B, D] of ids int64 [B, L]; attention [B, L] is true or 1 at tokens."""
        output = self.encoder(input_ids=ids_BL, attention_mask=attention_BL.long(), **self._options)
        vectors_BD = pool(output.last_hidden_state.float(), attention_BL, self.pooling)
        return vectors_BD if self.projection is None else self.projection(vectors_BD)


class BagOfWordsTower(nn.Module):
    """BoW-MLP (Chang et al. §4.2): the mean of the word embeddings, then two linear layers with tanh in between.

    The ids `added` around and between texts do not count as words ([UNK] does). A text without words has a mean of
    zero. `width` is the width of the vectors.
    """

    def __init__(
        self, vocabulary: int, added: tuple[int, ...], width: int, embedding: int = BAG_WIDTH, hidden: int = BAG_HIDDEN
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        # The scale of BERT's embeddings; the default of nn.Embedding would saturate tanh.
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.hidden = nn.Linear(embedding, hidden)
        self.output = nn.Linear(hidden, width)
        self.register_buffer("added", torch.tensor(added), persistent=False)

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.output.out_features

    def forward(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """Vectors [B, D] of ids int64 [B, L]; attention [B, L] is true or 1 at tokens."""
        word_BL = attention_BL.bool() & ~torch.isin(ids_BL, self.get_buffer("added"))
        mean_BD = pool(self.embedding(ids_BL), word_BL, "mean")
        return self.output(torch.tanh(self.hidden(mean_BD)))

    def drawn_anew(self) -> "BagOfWordsTower":
        """A new tower of the same sizes, with parameters drawn from torch's random state."""
        vocabulary, embedding = self.embedding.weight.shape
        added = tuple(self.get_buffer("added").tolist())
        return BagOfWordsTower(vocabulary, added, self.width, embedding, self.hidden.out_features)


Tower = TransformerTower | BagOfWordsTower | ModuleTower
