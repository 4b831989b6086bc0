"""The card (`README.md`) of every retriever that a step writes: what the Hugging Face Hub and its readers ask.

The Hub's metadata passes from the base model's card to the cards of all that is trained from it. There the entry
`stillhouse` lists the steps that made a model, and the digests of what it was made of.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from yaml import YAMLError

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.config import recorded
from stillhouse.core.curves import HELDOUT_LOSS
from stillhouse.core.errors import InputError
from stillhouse.core.pages import as_text, page_template
from stillhouse.core.report import Report
from stillhouse.corpus.titles import LEFT_OUT, TITLES
from stillhouse.models.encoder_settings import read_settings
from stillhouse.models.model_place import PACKAGE
from stillhouse.pipeline.model_table import MANY, base_models
from stillhouse.pipeline.start_model import place_of

CARD = "README.md"
TEMPLATE = Path(__file__).with_suffix(".jinja")
STARTS_FROM = ("encoder", "trained", "init")
"""The inputs of steps that are the model which a step changes, the most direct one first."""
SHOWN = (
    *("weights", "layers", "pooling", "objective", "contrastive", "similarity", "temperature", "distilled", "alpha"),
    *("negatives_per_query", "negatives_depth", "batch_size", "learning_rate", "epochs", "max_steps", "lora_rank"),
    *("matryoshka_dims", "seed", "winner"),
)
"""The settings and facts of steps that a card shows."""
OF_BASE = ("language", "license", "license_name", "license_link")
OWN = "stillhouse"
NAMED_ON_PUSH = "sentence_transformers_model_id"
"""`push_to_hub` of sentence-transformers replaces it with the model's name on the Hub."""
Figures = Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]]
"""System -> measure -> mean and 95 % interval."""


def card_of(folder: Path) -> dict[str, Any]:
    """The metadata of the card in a folder; empty without one, and for one that the Hub could not read."""
    from huggingface_hub import metadata_load

    with suppress(OSError, ValueError, YAMLError):
        return metadata_load(folder / CARD) or {}
    return {}


def base_data(model: str) -> dict[str, Any]:
    """The metadata of a base model: language and licence, from its own card or from our table, and its name."""
    own: dict[str, Any] = {}
    named = _is_hub_name(model)
    row = next((row for row in base_models() if row["name"] == model), None)
    if row:
        own = {"language": "multilingual" if row["language"] == MANY else row["language"]}
        own |= {"license": row["licence"].lower()}
    with suppress(InputError):  # the model may have been somewhere that this machine lacks
        own |= {key: value for key, value in card_of(place_of(model) or Path()).items() if key in OF_BASE}
    own |= {"base_model": model} if named else {}
    return own | {OWN: {"base": model} if named or model.startswith(PACKAGE) else {}}


def _is_hub_name(model: str) -> bool:
    from huggingface_hub.utils import validate_repo_id

    with suppress(ValueError):
        validate_repo_id(model)
        return not Path(model).is_dir()
    return False


def write_card(folder: Path, step: str, config: Any, inputs: Mapping[str, Path], report: Report, read: str) -> None:
    """Writes the card of the retriever in `folder`, which a step made with these settings and inputs.

    It continues the card that the folder holds, or that of the model which the step changed. `read` is the digest of
    the base model if the step fetched it.
    """
    changed = [folder, *(inputs[port] for port in STARTS_FROM if port in inputs)]
    data = next(filter(None, map(card_of, changed)), {}) if inputs else base_data(config.model)
    own = {"made_of": {}, "steps": []} | data.get(OWN, {})
    made_of = own["made_of"] | ({"base model": read} if read else {})
    if "corpus" in inputs:
        corpus = read_manifest(inputs["corpus"], verify=False)
        made_of[f"corpus: {_contents(corpus.facts)}"] = corpus.digest
    known = recorded(config) | report.facts
    settings = ", ".join(f"{key} {known[key]}" for key in SHOWN if known.get(key) not in (None, ""))
    own |= {"made_of": made_of, "steps": [*own["steps"], f"`{step}`: {as_text(settings)}"]}
    page = render(data | {OWN: own}, "Dense retriever", folder, _measured(report), report.facts)
    (folder / CARD).write_text(page, encoding="utf-8")


def _contents(facts: Mapping[str, Any]) -> str:
    questions = ", ".join(f"{count:,} {split}" for split, count in facts.get("queries", {}).items())
    return f"{facts.get('passages', 0):,} passages, questions: {questions or 'none'}"


def _measured(report: Report) -> tuple[str, Figures]:
    """What a step measured on dev questions."""
    if "dev_rr10" in report.facts:
        means, bounds = report.facts["dev_rr10"], report.facts["dev_rr10_interval"]
        of = {name: {"RR@10": (mean, tuple(bounds[name]))} for name, mean in means.items()}
        return f"{report.facts['queries']:,} dev questions", of
    losses = {"before": f"{HELDOUT_LOSS}_start", "after": HELDOUT_LOSS}
    return "dev questions", {
        f"{when} this step": {"loss": (report.metrics[name], None)}
        for when, name in losses.items()
        if name in report.metrics
    }


def render(
    data: Mapping[str, Any],
    name: str,
    folder: Path,
    measured: tuple[str, Figures],
    chosen: Mapping[str, Any],
    **eval_results: Any,
) -> str:
    """The card of the retriever in `folder` with the title `name`, from its metadata and what was measured on what."""
    from huggingface_hub import ModelCardData

    from stillhouse.search.winner import partners_of

    own, (asked, figures), titles = data[OWN], measured, read_settings(folder).titles
    of_hub = ModelCardData(
        **dict(data)
        | {
            "library_name": "sentence-transformers",
            "pipeline_tag": "sentence-similarity",
            "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "stillhouse"],
        },
        **eval_results,
    )
    base = own.get("base", "another model")
    trained = len([step for step in own["steps"] if not step.startswith(("`fetch-model`", "`select-best`"))])
    return page_template(TEMPLATE, as_text=as_text).render(
        data=of_hub.to_yaml(),
        name=name,
        made=f"It was trained from {as_text(base)}" if trained else f"It is {as_text(base)}, unchanged",
        named_on_push=NAMED_ON_PUSH,
        titles=titles,
        between="" if titles in ("", LEFT_OUT) else repr(TITLES[titles]),
        figures=figures,
        measures=list(next(iter(figures.values()), ())),
        asked=asked,
        chosen=chosen,
        partners=partners_of(chosen.get("winner", "")),
        steps=own["steps"],
        made_of=own["made_of"],
    )
