"""What a model folder says about itself: its modules, and how it turns a text into a vector.

| file | what it says |
|---|---|
| `stillhouse.json` | all settings of an encoder that a Stillhouse step wrote |
| `modules.json` | the modules of sentence-transformers, in the order they run, and their folders |
| `config_sentence_transformers.json` | what kind of model it is, its prompts, how many dimensions to keep |
| `sentence_bert_config.json` | how its Transformer reads a text |

This file does not import PyTorch: `stillhouse new` reads a base model's settings before anything runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import build, setting
from stillhouse.core.errors import InputError
from stillhouse.corpus.titles import TITLES
from stillhouse.models.settings import MODULES, PASSAGE_LENGTH, QUERY_LENGTH

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REMEDY = "copy the model folder again, or give one that `stillhouse fetch-model` wrote"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""For large models with several weight files: the file of each tensor."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.pkl")
SAVED = f"give a folder with {CONFIG} and {WEIGHTS}, as `save_pretrained` of transformers writes it"
MODEL = "config_sentence_transformers.json"
ROUTER = "router_config.json"
TRANSFORMER = "Transformer"
READING = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""The file of a Transformer is `sentence_bert_config.json`; versions before 0.4 named it after the architecture."""


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises `InputError` if it is missing or not JSON."""
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; {REMEDY}") from None


def json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object. Raises `InputError` for any other file."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object; {REMEDY}")
    return content


def object_if_there(path: Path) -> dict[str, Any]:
    """As `json_object`; empty if there is no such file."""
    return json_object(path) if path.is_file() else {}


@dataclass(frozen=True)
class Module:
    """A module of sentence-transformers: its class with the class's module, and its folder within the model's."""

    type: str
    path: str

    @property
    def kind(self) -> str:
        """The name of the class alone."""
        return self.type.rsplit(".", 1)[-1]


def modules_of(folder: Path) -> list[Module]:
    """The modules that `modules.json` lists; none if the folder has no such file."""
    path = folder / MODULES
    listed = read_json(path) if path.is_file() else []
    if not isinstance(listed, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str)
        for module in listed
    ):
        raise InputError(f"{path} is not a list of modules, each with a type and a path; {REMEDY}")
    return [Module(module["type"], module["path"]) for module in listed]


def transformer_in(folder: Path) -> Path:
    """The folder of the Hugging Face files: `0_Transformer` of an early sentence-transformers, that of a `Router` for
    documents, else `folder` itself."""
    if (folder / CONFIG).is_file():
        return folder
    if (folder / ROUTER).is_file():
        structure = json_object(folder / ROUTER).get("structure")
        route = structure.get("document") if isinstance(structure, dict) else None
        first = route[0] if isinstance(route, list) and route else None
        return folder / first if isinstance(first, str) and (folder / first / CONFIG).is_file() else folder
    return next((folder / module.path for module in modules_of(folder) if module.kind == TRANSFORMER), folder)


def refuse_foreign_weights(folder: Path) -> None:
    """Raises `InputError` for a folder of Hugging Face files whose only weights are a pickle."""
    if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
        return
    for name in PICKLES:
        if (folder / name).is_file():
            raise InputError(
                f"{folder / name} is a pickle, which can run code when it is loaded; save the model as {WEIGHTS} "
                "with `save_pretrained` of transformers"
            )


def saved_model(folder: Path) -> dict[str, Any]:
    """What sentence-transformers says about the whole model; empty if it says nothing."""
    return object_if_there(folder / MODEL)


def is_saved_cross_encoder(folder: Path) -> bool:
    """Whether the `CrossEncoder` of sentence-transformers 5.4 or later saved a folder."""
    return saved_model(folder).get("model_type") == "CrossEncoder"


def scores_by_modules(folder: Path) -> bool:
    """Whether a saved cross-encoder is more than one Transformer."""
    return is_saved_cross_encoder(folder) and [module.kind for module in modules_of(folder)] not in ([], [TRANSFORMER])


def lower_cased(tokenizer: Tokenizer, folder: Path) -> None:
    """Make a tokenizer lower-case its texts if its Transformer's `do_lower_case` says so, as sentence-transformers."""
    from tokenizers import normalizers

    files = (transformer_in(folder) / f"sentence_{name}_config.json" for name in READING)
    said: dict[str, Any] = next((found for found in map(object_if_there, files) if found), {})
    own: Any = tokenizer.normalizer
    several = isinstance(own, normalizers.Sequence)
    steps = list(own) if several else [own] if own is not None else []
    if said.get("do_lower_case") is True and not any(isinstance(step, normalizers.Lowercase) for step in steps):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])


HEADS = ("ForCausalLM", "LMHeadModel")
"""How the classes of decoders end; XLM and FlauBERT, which are encoders, have a `WithLMHeadModel`."""
DECODERS = re.compile(
    r".*gpt|llama|mi(ni)?stral|mixtral|qwen|gemma|phi|opt|bloom|falcon|smollm|olmo|granite|cohere|deepseek|glm"
    r"|stablelm|starcoder|mpt|codegen|mamba|nemotron|lfm|exaone|internlm|minicpm|hunyuan|ernie4|xglm|xlnet"
)
T5 = re.compile(r"(m|um)?t5|t5gemma")
"""Model types of transformers begin with these. Of a T5, sentence-transformers takes the encoder alone."""


def is_decoder(config: Mapping[str, Any]) -> bool:
    """Whether a Hugging Face configuration is a decoder's, or a T5's, which have no [CLS] token."""
    kind, classes = str(config.get("model_type", "")), config.get("architectures")
    heads = [str(name) for name in classes] if isinstance(classes, list) else []
    generates = any(name.endswith(HEADS) and not name.endswith("WithLMHeadModel") for name in heads)
    found = generates or config.get("is_decoder") is True or kind.endswith("decoder")
    return bool(found or DECODERS.match(kind) or T5.match(kind))


OWN_POOLING = "stillhouse_pooling"
"""The entry in a cross-encoder's configuration that says `cosine`; a folder without it has a scoring layer."""
SETTINGS = "stillhouse.json"
POOLINGS = ("cls", "mean")
"""The poolings of a `TransformerTower`."""
OF_MODULES = "modules"
"""The value of `pooling` for a model that sentence-transformers' own modules compute."""
LONGEST = 1_000_000
"""The largest length of a text in tokens for any model; a larger number must be a mistake."""
QUERY_PROMPT = "query"
PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""The names that sentence-transformers gives a passage prompt; the first that a model has counts."""


@dataclass(frozen=True)
class EncoderSettings:
    """How an encoder folder turns a text into a vector, in addition to the Hugging Face files.

    `projection` is the width of the linear layer on the pooled vector; 0 = no layer. `towers` is "shared", or
    "separate" if queries have an encoder of their own. `titles` says how passages were read in the last training; it
    changes no vector. A prompt is put before every text of its role, with its spaces, and counts towards the length.
    """

    pooling: str = setting("cls", "how token states become a vector", choices=(*POOLINGS, OF_MODULES))
    normalize: bool = setting(True, "vectors have length 1")
    query_length: int = setting(QUERY_LENGTH, "tokens of a query", minimum=3, maximum=LONGEST)
    passage_length: int = setting(PASSAGE_LENGTH, "tokens of a passage", minimum=3, maximum=LONGEST)
    projection: int = setting(0, "width of the layer on the pooled vector", minimum=0)
    towers: str = setting("shared", "whether queries have an encoder of their own", choices=("shared", "separate"))
    query_prompt: str = setting("", "text put before every query")
    passage_prompt: str = setting("", "text put before every passage")
    titles: str = setting(
        "",
        "the separator of titles and texts in its last training, as in `titles` of ingest; empty = unknown",
        choices=("", *TITLES),
    )
    truncate_dim: int | None = setting(
        None, "keep only the first dimensions of a vector, this many; null = all", minimum=1
    )


def read_settings(folder: Path, **prompts: str | None) -> EncoderSettings:
    """An encoder folder's settings: from `stillhouse.json`, else its sentence-transformers modules, else [CLS].

    `prompts` gives `query_prompt` and `passage_prompt`; null = the model's own. A model of other modules than a
    Transformer with [CLS] or mean pooling has the pooling `OF_MODULES`. Raises `InputError` for prompts of which it is
    not said what they are for, and for malformed files.
    """
    given: dict[str, Any] = {name: text for name, text in prompts.items() if text is not None}
    if (folder / SETTINGS).is_file():
        return replace(build(EncoderSettings, json_object(folder / SETTINGS), str(folder / SETTINGS)), **given)
    if not (folder / MODULES).is_file() or is_saved_cross_encoder(folder):
        if is_decoder(object_if_there(transformer_in(folder) / CONFIG)):
            given["pooling"] = OF_MODULES
        return EncoderSettings(**given)
    by_kind = {module.kind: module.path for module in modules_of(folder)}
    if not by_kind:
        raise InputError(f"{folder / MODULES} lists no module; {REMEDY}")
    said = saved_model(folder)
    normalize = "Normalize" in by_kind or said.get("similarity_fn_name") == "cosine"
    own = {"pooling": OF_MODULES, "normalize": normalize, "truncate_dim": said.get("truncate_dim")}
    settings = build(EncoderSettings, own | _prompts(folder / MODEL, said, given), str(folder / MODEL))
    if by_kind.keys() - {TRANSFORMER, "Pooling", "Normalize"} or "Pooling" not in by_kind:
        return settings
    pooling = json_object(folder / by_kind["Pooling"] / "config.json")
    modes = {name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
             for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True}  # fmt: skip
    mode = pooling.get("pooling_mode") or "+".join(sorted(modes))
    prompted = bool(settings.query_prompt or settings.passage_prompt) and pooling.get("include_prompt") is False
    if mode not in POOLINGS or prompted or is_decoder(object_if_there(transformer_in(folder) / CONFIG)):
        return settings
    return replace(settings, pooling=mode)


def _prompts(path: Path, said: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The prompts of queries and passages that are `given`, else those of `encode_query` and `encode_document`.

    Other prompts are for other tasks. A model that has only such prompts does not say which one a search needs.
    """
    prompts = said.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"{path}: its prompts are not texts with names; {REMEDY}")
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if prompts.get(name)), None)
    found = {"query_prompt": prompts.get(QUERY_PROMPT) or "", "passage_prompt": passage or ""} | given
    others = [name for name, text in prompts.items() if text and name not in (QUERY_PROMPT, *PASSAGE_PROMPTS)]
    if others and not any(found.values()) and len(given) < len(found):
        raise InputError(
            f"{path} has the prompts {', '.join(others)}, but none for queries or passages; give query_prompt and "
            "passage_prompt to `stillhouse fetch-model` and start from the folder that it writes"
        )
    return found
