"""The folder of a bi-encoder: its towers as Stillhouse, `AutoModel` and `SentenceTransformer` read them.

| towers | Transformer | bag of words |
|---|---|---|
| shared | a Hugging Face folder, the projection in `2_Dense/` | modules in `document/`, a tokenizer next to it |
| separate | the same for passages, and another in `query/` for queries | modules in `document/` and in `query/` |

For separate towers, sentence-transformers gets a `Router` over both: `encode_query` and `encode_document`.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.models.encoder_settings import (
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
from stillhouse.models.model_place import EMBEDDINGS, is_bag_of_words
from stillhouse.models.settings import MODULES
from stillhouse.models.tokenizer_files import save_tokenizer
from stillhouse.models.towers import NORMALIZE, ROUTES, BagOfWordsTower, ModuleTower, Role, Tower, TransformerTower
from stillhouse.models.transformer import WEIGHTS, load_model, read_tensors, refuse_larger_vocabulary, shapes_of

POOLING, PROJECTION = "1_Pooling", "2_Dense"
"""The folders of the modules after a Transformer."""
PREFIX = "linear."
"""Begins the names of the tensors of a `Dense` module."""
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
    for role, tower in towers.items():
        assert not isinstance(tower, ModuleTower), "sentence-transformers writes these"
        own = settings
        if role == "query":
            own = replace(
                settings, passage_length=settings.query_length, passage_prompt=settings.query_prompt, towers="shared"
            )
        if isinstance(tower, BagOfWordsTower):
            _write_bag(folder / ROUTES[role], tower, tokenizer, own.passage_length)
        else:
            place = folder / TRANSFORMERS[role]
            whole = model if model is not None and role == "passage" else tower.encoder
            whole.save_pretrained(place)
            save_tokenizer(tokenizer, place)
            write_modules(place, int(tower.encoder.config.hidden_size), own, tower.projection)
    if isinstance(towers["passage"], BagOfWordsTower):
        save_tokenizer(tokenizer, folder)
        _write_sentence_transformer(folder, _modules("passage", towers["passage"]), settings)
    if settings.towers == "separate":
        _write_router(folder, towers, settings)


Modules = list[tuple[str, str]]
"""Kinds of sentence-transformers modules and their folders, in the order they run."""


def _read_transformer(folder: Path, tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> TransformerTower:
    encoder = load_model(AutoModel, folder).model
    refuse_larger_vocabulary(folder, tokenizer, encoder.get_input_embeddings())
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
    hidden = read_projection(folder / BAG[1], weights_VE.shape[1])
    output = read_projection(folder / BAG[2], hidden.out_features)
    added = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    if None in added:
        raise InputError(f"{folder.parent}: the tokenizer lacks [CLS] or [SEP], which bags leave out; {REMEDY}")
    tower = BagOfWordsTower(len(weights_VE), added, output.out_features, weights_VE.shape[1], hidden.out_features)
    refuse_larger_vocabulary(folder / BAG[0], tokenizer, tower.embedding)
    tower.embedding.load_state_dict({"weight": weights_VE})
    tower.hidden, tower.output = hidden, output
    return tower


def _modules(role: Role, tower: Tower) -> Modules:
    """The modules of a tower and their folders within the encoder folder."""
    if isinstance(tower, BagOfWordsTower):
        return [(name.split("_")[1], f"{ROUTES[role]}/{name}") for name in BAG]
    inside = _of_transformer(tower.projection is not None)
    return [(kind, (Path(TRANSFORMERS[role]) / path).as_posix()) for kind, path in inside]


def _of_transformer(projects: bool) -> Modules:
    return [("Transformer", ""), ("Pooling", POOLING), *([("Dense", PROJECTION)] if projects else [])]


def _write_router(folder: Path, towers: Mapping[Role, Tower], settings: EncoderSettings) -> None:
    routes = {ROUTES[role]: _modules(role, tower) for role, tower in towers.items()}
    write_json(
        folder / "router_config.json",
        {
            "types": {path: _module_type(kind) for modules in routes.values() for kind, path in modules},
            "structure": {route: [path for _, path in modules] for route, modules in routes.items()},
            "parameters": {"default_route": ROUTES["passage"], "allow_empty_key": True},
        },
    )
    _write_sentence_transformer(folder, [("Router", "")], settings)


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
    if projection is not None:
        write_projection(folder / PROJECTION, projection)
    _write_sentence_transformer(folder, _of_transformer(projection is not None), settings)


def _module_type(kind: str) -> str:
    """The class name of a kind of module that every version of sentence-transformers knows."""
    return f"sentence_transformers.models.{kind}"


def _write_sentence_transformer(folder: Path, modules: Modules, settings: EncoderSettings) -> None:
    """Write the files about the whole folder: its modules, lengths, similarity, prompts and settings."""
    if settings.normalize:
        place = f"{3 if settings.projection else 2}_{NORMALIZE}"
        # Tools that track files would lose an empty folder.
        (folder / place).mkdir(exist_ok=True)
        write_json(folder / place / "config.json", {})
        modules = [*modules, (NORMALIZE, place)]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": _module_type(kind)} for i, (kind, path) in enumerate(modules)
    ]
    write_json(folder / MODULES, rows)
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
