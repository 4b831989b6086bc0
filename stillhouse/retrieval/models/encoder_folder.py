"""The folder of a bi-encoder: its towers as Stillhouse, `AutoModel` and `SentenceTransformer` read them.

| towers | Transformer | bag of words |
|---|---|---|
| shared | a Hugging Face folder, the projection in `2_Dense/` | modules in `document/`, a tokenizer next to it |
| separate | the same for passages, and another in `query/` for queries | modules in `document/` and in `query/` |

For separate towers, sentence-transformers gets a `Router` over both: `encode_query` and `encode_document`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.artifacts import write_json
from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder_settings import (
    CONFIG,
    MODEL,
    OWN_POOLING,
    PASSAGE_PROMPTS,
    REMEDY,
    SETTINGS,
    EncoderSettings,
    object_if_there,
    transformer_in,
)
from stillhouse.retrieval.models.model_place import DOCUMENT, EMBEDDINGS, is_bag_of_words
from stillhouse.retrieval.models.tokenizer_files import save_tokenizer
from stillhouse.retrieval.models.towers import BagOfWordsTower, Role, Tower, TransformerTower
from stillhouse.retrieval.models.transformer import (
    WEIGHTS,
    load_model,
    read_tensors,
    refuse_larger_vocabulary,
    refuse_unusable,
    shapes_of,
)
from stillhouse.retrieval.settings import MODULES

POOLING = "1_Pooling"
ROUTES: Mapping[Role, str] = {"passage": DOCUMENT, "query": "query"}
"""The sentence-transformers names of the roles; a bag of words has a folder of that name for each tower."""
TRANSFORMERS: Mapping[Role, str] = {"passage": "", "query": "query"}
"""The folder of a role's Transformer."""
BAG = (EMBEDDINGS, "1_Dense", "2_Dense")
"""The folders of a bag of words: embeddings of words, the hidden layer with tanh, the output."""
WORDS = "embedding.weight"


def refuse_bag_of_words(folder: Path) -> None:
    """Refuse a BoW-MLP folder where a Transformer or its language-model head is needed."""
    if is_bag_of_words(folder):
        raise InputError(
            f"{folder} is a bag of words (bow_mlp), without a Transformer or a language-model head; give a "
            "Transformer, such as bert-base-uncased fetched with `stillhouse fetch-model`"
        )


def refuse_cross_encoder(folder: Path) -> None:
    """Refuse a cross-encoder where texts must become vectors. It would load, but its vectors would mean nothing."""
    config = object_if_there(transformer_in(folder) / CONFIG)
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    if OWN_POOLING in config or any(str(name).endswith("ForSequenceClassification") for name in names):
        raise InputError(
            f"{folder} is a cross-encoder, which scores pairs and makes no vectors; give a retriever or an encoder. To "
            "start one from its layers, run `stillhouse fetch-model` on it first"
        )


def read_towers(folder: Path, settings: EncoderSettings, tokenizer: PreTrainedTokenizerBase) -> dict[Role, Tower]:
    """The towers by role, in float32; no "query" if the folder's own `settings.towers` is "shared".

    Raises `InputError` for files that are missing, damaged, or from different models.
    """
    roles: tuple[Role, ...] = ("passage",) if settings.towers == "shared" else ("passage", "query")
    towers: dict[Role, Tower] = {}
    for role in roles:
        if is_bag_of_words(folder):
            towers[role] = _read_bag(folder / ROUTES[role], tokenizer)
        else:
            towers[role] = _read_transformer(folder / TRANSFORMERS[role], tokenizer, settings)
    if len({tower.width for tower in towers.values()}) > 1:
        raise InputError(f"{folder}: the towers make vectors of different widths, which cannot be compared; {REMEDY}")
    return towers


def write_towers(
    folder: Path,
    towers: Mapping[Role, Tower],
    tokenizer: PreTrainedTokenizerBase,
    settings: EncoderSettings,
    model: PreTrainedModel | None = None,
) -> None:
    """Write towers by role; without "query" they are shared, and `settings.towers` must say so.

    `model`, which contains the passages' Transformer and a language-model head, is written in place of the former.
    """
    assert ("query" in towers) == (settings.towers == "separate"), settings
    passage, query = towers["passage"], towers.get("query")
    _write_tower(folder, "passage", passage, tokenizer, settings, model)
    if query is not None:
        own = replace(
            settings,
            passage_length=settings.query_length,
            passage_prompt=settings.query_prompt,
            towers="shared",
        )
        _write_tower(folder, "query", query, tokenizer, own)
        _write_router(folder, {"passage": passage, "query": query}, settings)
    elif isinstance(passage, BagOfWordsTower):
        write_module_list(folder, [*_modules("passage", passage), *_normalize(settings)])
    if isinstance(passage, BagOfWordsTower):
        save_tokenizer(tokenizer, folder)
        write_sentence_transformer(folder, settings)


Modules = list[tuple[str, str]]
"""Kinds of sentence-transformers modules and their folders, in the order they run."""


def _write_tower(
    folder: Path,
    role: Role,
    tower: Tower,
    tokenizer: PreTrainedTokenizerBase,
    settings: EncoderSettings,
    model: PreTrainedModel | None = None,
) -> None:
    if isinstance(tower, BagOfWordsTower):
        _write_bag(folder / ROUTES[role], tower, tokenizer, settings.passage_length)
        return
    own = folder / TRANSFORMERS[role]
    (model or tower.encoder).save_pretrained(own)
    save_tokenizer(tokenizer, own)
    write_modules(own, int(tower.encoder.config.hidden_size), settings, tower.projection)


def _read_transformer(folder: Path, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> TransformerTower:
    encoder = load_model(AutoModel, folder).model
    refuse_unusable(folder, encoder, tokenizer)
    width, wanted = int(encoder.config.hidden_size), settings.projection
    return TransformerTower(
        encoder, settings.pooling, read_projection(folder / PROJECTION, width, wanted) if wanted else None
    )


def _write_bag(folder: Path, tower: BagOfWordsTower, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """`max_length` counts special tokens, as for a Transformer, although a bag has none.

    If a text spells out a special token ("[SEP]"), sentence-transformers treats it as a word; `BagOfWordsTower` does
    not.
    """
    embedding, hidden, output = (folder / name for name in BAG)
    embedding.mkdir(parents=True)
    words = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    words.no_padding()
    words.enable_truncation(max_length - tokenizer.num_special_tokens_to_add())
    words.save(str(embedding / "tokenizer.json"))
    weights = {WORDS: tower.embedding.weight.detach().cpu().contiguous()}
    save_file(weights, embedding / WEIGHTS, metadata={"format": "pt"})
    write_projection(hidden, tower.hidden, nn.Tanh)
    write_projection(output, tower.output)


def _read_bag(folder: Path, tokenizer: PreTrainedTokenizerBase) -> BagOfWordsTower:
    weights_VE = read_tensors(folder / BAG[0] / WEIGHTS, {WORDS: (None, None)})[WORDS]
    refuse_larger_vocabulary(folder / BAG[0], tokenizer, len(weights_VE))
    hidden = read_projection(folder / BAG[1], weights_VE.shape[1])
    output = read_projection(folder / BAG[2], hidden.out_features)
    added = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    if None in added:
        raise InputError(f"{folder.parent}: the tokenizer lacks [CLS] or [SEP], which bags leave out; {REMEDY}")
    tower = BagOfWordsTower(len(weights_VE), added, output.out_features, weights_VE.shape[1], hidden.out_features)
    tower.embedding.load_state_dict({"weight": weights_VE})
    tower.hidden, tower.output = hidden, output
    return tower


def _modules(role: Role, tower: Tower) -> Modules:
    """The modules of a tower and their folders within the encoder folder."""
    if isinstance(tower, BagOfWordsTower):
        return [(name.split("_")[1], f"{ROUTES[role]}/{name}") for name in BAG]
    kinds = [("Transformer", ""), ("Pooling", POOLING)] + ([("Dense", PROJECTION)] if tower.projection else [])
    return [(kind, (Path(TRANSFORMERS[role]) / path).as_posix()) for kind, path in kinds]


def _write_router(folder: Path, towers: Mapping[Role, Tower], settings: EncoderSettings) -> None:
    routes = {ROUTES[role]: _modules(role, tower) for role, tower in towers.items()}
    write_json(
        folder / "router_config.json",
        {
            "types": {path: module_type(kind) for modules in routes.values() for kind, path in modules},
            "structure": {route: [path for _, path in modules] for route, modules in routes.items()},
            "parameters": {"default_route": ROUTES["passage"], "allow_empty_key": True},
        },
    )
    write_module_list(folder, [("Router", ""), *_normalize(settings)])


def _normalize(settings: EncoderSettings) -> Modules:
    return [("Normalize", normalize_path(settings))] if settings.normalize else []


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


def write_modules(folder: Path, width: int, settings: EncoderSettings, projection: nn.Linear | None = None) -> None:
    """Make a Hugging Face model folder loadable by `SentenceTransformer(folder)` with the same vectors.

    `width` is the width of the hidden states; `projection` is the layer that `settings.projection` announces. The files
    have the form that sentence-transformers reads since version 2. Raises `InputError` if the layer is missing.
    """
    if settings.projection and projection is None:
        raise InputError(
            f"the encoder ends in a linear layer of width {settings.projection}, which would be lost here; "
            "give its folder to the step directly, as the model to start from"
        )
    assert settings.projection == (projection.out_features if projection else 0), settings
    write_module_list(folder, _modules(settings))
    write_pooling(folder, width, settings)
    if projection is not None:
        write_projection(folder / PROJECTION, projection)
    write_sentence_transformer(folder, settings)


def write_module_list(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Write the modules that sentence-transformers runs in order, each with its kind and its folder."""
    numbered = enumerate(modules)
    rows = [{"idx": i, "name": str(i), "path": path, "type": module_type(kind)} for i, (kind, path) in numbered]
    write_json(folder / MODULES, rows)


def module_type(kind: str) -> str:
    """The class name of a kind of module that every version of sentence-transformers knows."""
    return f"sentence_transformers.models.{kind}"


def _modules(settings: EncoderSettings) -> list[tuple[str, str]]:
    """The kinds of a folder's modules and their folders."""
    modules = [("Transformer", ""), ("Pooling", POOLING)]
    if settings.projection:
        modules.append(("Dense", PROJECTION))
    if settings.normalize:
        modules.append(("Normalize", normalize_path(settings)))
    return modules


def normalize_path(settings: EncoderSettings) -> str:
    """The folder of the module that scales vectors to length 1."""
    return "3_Normalize" if settings.projection else "2_Normalize"


def write_pooling(folder: Path, width: int, settings: EncoderSettings) -> None:
    """Write the module that pools hidden states of a width into one vector."""
    (folder / POOLING).mkdir(exist_ok=True)
    write_json(
        folder / POOLING / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": settings.pooling == "cls",
            "pooling_mode_mean_tokens": settings.pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )


def write_sentence_transformer(folder: Path, settings: EncoderSettings) -> None:
    """Write the files about the whole folder: lengths, similarity, prompts and settings."""
    if settings.normalize:
        # Tools that track files would lose an empty folder.
        (folder / normalize_path(settings)).mkdir(exist_ok=True)
        write_json(folder / normalize_path(settings) / "config.json", {})
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": settings.passage_length, "do_lower_case": False}
    )
    similarity = "cosine" if settings.normalize else "dot"
    about: dict[str, object] = {"__version__": {}, "similarity_fn_name": similarity}
    if settings.query_prompt or settings.passage_prompt:
        about["prompts"] = {"query": settings.query_prompt, PASSAGE_PROMPTS[0]: settings.passage_prompt}
    if settings.truncate_dim:
        about["truncate_dim"] = settings.truncate_dim
    write_json(folder / MODEL, about)
    write_json(folder / SETTINGS, asdict(settings))
