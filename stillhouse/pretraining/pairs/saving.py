"""The folder of trained towers, for `AutoModel`, `SentenceTransformer` and, with shared towers, every later step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.artifacts import write_json
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.towers import BagOfWordsTower, TransformerTower
from stillhouse.retrieval.pooling import (
    EncoderSettings,
    module_type,
    normalize_path,
    write_module_list,
    write_modules,
    write_sentence_transformer,
)
from stillhouse.retrieval.projection import PROJECTION, write_projection
from stillhouse.retrieval.tokenizer_files import save_tokenizer

QUERY = "query"
"""The folder of the query tower within the folder of separate towers."""


def save_towers(
    towers: PairPretraining, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Writes the towers that were trained on `model`, with its language-model head.

    Shared towers make an encoder folder. Separate ones make the passages' encoder folder with the queries' in `query/`
    and a `Router` over both for sentence-transformers (`encode_query`, `encode_document`). A bag of words makes a
    sentence-transformers folder alone (`StaticEmbedding` and two `Dense` modules), without a limit on the length.
    """
    settings = encoder_settings(towers)
    query, passage = towers.query_tower, towers.passage_tower
    if isinstance(passage, BagOfWordsTower):
        assert isinstance(query, BagOfWordsTower)
        routes = {"document": _write_bag(passage, tokenizer, folder, "document")}
        if query is not passage:
            routes[QUERY] = _write_bag(query, tokenizer, folder, QUERY)
            _write_router(folder, routes, settings)
        else:
            write_module_list(folder, [*routes["document"], *_normalize(settings)])
        write_sentence_transformer(folder, settings)
        return
    assert isinstance(passage, TransformerTower) and isinstance(query, TransformerTower)
    _write_tower(model, passage, tokenizer, settings, folder)
    if query is not passage:
        own = replace(settings, passage_length=settings.query_length)
        _write_tower(query.encoder, query, tokenizer, own, folder / QUERY)
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling")] + (
            [("Dense", PROJECTION)] if settings.projection else []
        )
        routes = {
            "document": [(kind, path or ".") for kind, path in kinds],
            QUERY: [(kind, f"{QUERY}/{path}".rstrip("/")) for kind, path in kinds],
        }
        _write_router(folder, routes, settings)


def encoder_settings(towers: PairPretraining) -> EncoderSettings:
    """How the trained towers make a text a vector."""
    config = towers.config
    return EncoderSettings(
        pooling=towers.pooling,
        normalize=config.pair_normalize,
        query_length=config.query_length,
        passage_length=config.passage_length,
        projection=config.projection,
        towers=config.towers,
    )


Modules = list[tuple[str, str]]
"""Kinds of sentence-transformers modules and the folders that they lie in, in the order they run."""


def _write_tower(
    model: PreTrainedModel,
    tower: TransformerTower,
    tokenizer: PreTrainedTokenizerBase,
    settings: EncoderSettings,
    folder: Path,
) -> None:
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    write_modules(folder, int(model.config.hidden_size), settings, tower.projection)


def _write_bag(tower: BagOfWordsTower, tokenizer: PreTrainedTokenizerBase, folder: Path, name: str) -> Modules:
    modules = [
        ("StaticEmbedding", f"{name}/0_StaticEmbedding"),
        ("Dense", f"{name}/1_Dense"),
        ("Dense", f"{name}/2_Dense"),
    ]
    paths = [folder / path for _, path in modules]
    paths[0].mkdir(parents=True)
    words = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    words.no_padding()
    words.no_truncation()
    words.save(str(paths[0] / "tokenizer.json"))
    weights = {"embedding.weight": tower.embedding.weight.detach().cpu().contiguous()}
    save_file(weights, paths[0] / "model.safetensors", metadata={"format": "pt"})
    write_projection(paths[1], tower.hidden, nn.Tanh)
    write_projection(paths[2], tower.output)
    return modules


def _write_router(folder: Path, routes: dict[str, Modules], settings: EncoderSettings) -> None:
    write_json(
        folder / "router_config.json",
        {
            "types": {path: module_type(kind) for modules in routes.values() for kind, path in modules},
            "structure": {route: [path for _, path in modules] for route, modules in routes.items()},
            "parameters": {"default_route": "document", "allow_empty_key": True},
        },
    )
    write_module_list(folder, [("Router", ""), *_normalize(settings)])


def _normalize(settings: EncoderSettings) -> Modules:
    return [("Normalize", normalize_path(settings))] if settings.normalize else []
