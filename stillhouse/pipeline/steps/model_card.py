"""The card (`README.md`) of every retriever that a step writes: what the Hugging Face Hub and its readers ask.

A base model's language and licence pass on to all models trained from it. The entry `stillhouse` of the metadata lists
the steps that made a model and the digests of what it was made of.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import model_manifest, read_manifest, remove
from stillhouse.core.config import recorded
from stillhouse.core.curves import DEV, HELDOUT_LOSS
from stillhouse.core.errors import InputError
from stillhouse.core.pages import as_text, page_template
from stillhouse.core.report import Report
from stillhouse.corpus.titles import LEFT_OUT, TITLES
from stillhouse.models.encoder_settings import read_settings
from stillhouse.models.model_place import place_of
from stillhouse.models.model_table import MANY, base_models
from stillhouse.models.settings import PACKAGE
from stillhouse.search.winner import partners_of
from stillhouse.training.settings import RANKINGS

CARD = "README.md"
TEMPLATE = Path(__file__).with_suffix(".jinja")
STARTS_FROM = ("encoder", "trained", "init")
"""The inputs of steps that are the model which a step changes, the most direct one first."""
SHOWN = (
    *("weights", "layers", "pooling", "objective", "contrastive", "similarity", "temperature", "distilled", "alpha"),
    *("negatives_per_query", "negatives_depth", "batch_size", "learning_rate", "epochs", "max_steps", "lora_rank"),
    *("matryoshka_dims", "seed"),
)
"""The settings and facts of steps that a card shows."""
LICENCE = ("license", "license_name", "license_link")
OWN = "stillhouse"
NAMED_ON_PUSH = "sentence_transformers_model_id"
"""`push_to_hub` of sentence-transformers replaces it with the model's name on the Hub."""
Figures = Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]]
"""System -> measure -> mean and 95 % interval."""


def card_of(folder: Path) -> dict[str, Any]:
    """The metadata of the card in a folder; empty without one, and for one that cannot be read."""
    from huggingface_hub import metadata_load

    with suppress(Exception):  # whatever a foreign file holds
        return metadata_load(folder / CARD) or {}
    return {}


def passed_on(folder: Path) -> dict[str, Any]:
    """What the card in a folder says of all models trained from it: of a foreign card, language and licence alone."""
    data = card_of(folder)
    own = data.get(OWN)
    ours = isinstance(own, dict) and isinstance(own.get("made_of"), dict) and isinstance(own.get("steps"), list)
    kept = ("language", *LICENCE, *(("base_model", OWN) if ours else ()))
    # YAML reads the code of Norwegian, no, as false.
    return {key: value for key in kept if (value := data.get(key)) not in (None, False)}


def base_data(model: str) -> dict[str, Any]:
    """The metadata of a base model: what its own card or our table says, and its name on the Hub."""
    data: dict[str, Any] = {}
    if row := next((row for row in base_models() if row["name"] == model), None):
        data["language"] = "multilingual" if row["language"] == MANY else row["language"]
        data["license"] = row["licence"].lower()
    with suppress(InputError):  # the model may have been somewhere that this machine lacks
        data |= passed_on(place) if (place := place_of(model)) else {}
    if named := _is_hub_name(model):
        data["base_model"] = model
    return data | ({OWN: {"base": model}} if named or model.startswith(PACKAGE) else {})


def _is_hub_name(model: str) -> bool:
    from huggingface_hub.utils import validate_repo_id

    with suppress(ValueError):
        validate_repo_id(model)
        return not Path(model).is_dir()
    return False


def write_card(folder: Path, step: str, config: Any, inputs: Mapping[str, Path], report: Report, base: str) -> None:
    """Writes the card of the retriever in `folder`, which a step made with these settings and inputs.

    It continues the card that a copied folder holds, or that of the model which the step changed. A step without inputs
    fetched its base model, whose digest is `base`.
    """
    start = next((inputs[port] for port in STARTS_FROM if port in inputs), folder)
    data = passed_on(start) if inputs else base_data(config.model)
    own: dict[str, Any] = {"made_of": {}, "steps": []} | data.get(OWN, {})
    made_of = dict(own["made_of"]) or {base or model_manifest(start, verify=False).digest: "base model"}
    if "small" in inputs:  # a second base model, whose licence may be another
        made_of[model_manifest(inputs["small"], verify=False).digest] = "base model of the queries"
        if passed_on(inputs["small"]).get("license") != data.get("license"):
            data = {key: value for key, value in data.items() if key not in LICENCE}
    if not inputs or (report.metrics and step != "select-best"):  # else the model is unchanged
        known = recorded(config) | report.facts
        if not known.get("distilled", True):
            known.pop("alpha", None)  # it weighs a teacher
        settings = ", ".join(f"{key} {known[key]}" for key in SHOWN if known.get(key) not in (None, ""))
        own["steps"] = [*own["steps"], f"{step}: {settings}"]
        for port in ("corpus", "tokens"):
            if port in inputs:
                given = read_manifest(inputs[port], verify=False)
                made_of[given.inputs.get("corpus", given.digest)] = f"corpus of {step}{_contents(given.facts)}"
    data |= {OWN: own | {"made_of": made_of}}
    page = render(data, "Dense retriever", folder, _measured(step, report), report.facts)
    remove(folder / CARD)
    (folder / CARD).write_text(page, encoding="utf-8")


def _contents(facts: Mapping[str, Any]) -> str:
    questions = ", ".join(f"{count:,} {split}" for split, count in facts.get("queries", {}).items())
    return f": {facts['passages']:,} passages, questions: {questions or 'none'}" if "passages" in facts else ""


def _measured(step: str, report: Report) -> tuple[str, Figures]:
    """What a step measured, and on what."""
    if bounds := report.facts.get("dev_rr10_interval"):
        means = report.facts["dev_rr10"]
        of = {name: {"RR@10": (mean, bounds[name])} for name, mean in means.items()}
        return f"{report.facts['queries']:,} dev questions{', made from the passages' * report.facts['synthetic']}", of
    bounds = report.facts.get("intervals", {})
    labels = {HELDOUT_LOSS: "loss"} | {DEV + measure: measure for measure in RANKINGS.values()}
    among = "all passages" if step == "train-query-encoder" else "its best hard negatives"
    asked = f"held-out examples, which also chose {'alpha' if step == 'average' else 'the step'}"
    if any(name.startswith(DEV) for name in bounds):
        asked += f" (a dev question's answers are ranked among {among})"
    found = {
        when: {
            label: (report.metrics[name + end], bounds.get(name + end))
            for name, label in labels.items()
            if name + end in report.metrics
        }
        for when, end in (("before training", "_start"), ("after training", ""))
    }
    return asked, {when: of for when, of in found.items() if of}


def render(
    data: Mapping[str, Any], name: str, folder: Path, measured: tuple[str, Figures], chosen: Mapping[str, Any]
) -> str:
    """The card of the retriever in `folder` with the title `name`, from its metadata and what was measured on what."""
    from huggingface_hub import ModelCardData

    own, (asked, figures), titles = data[OWN], measured, read_settings(folder).titles
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "stillhouse"]
    of_hub = ModelCardData(**data, library_name="sentence-transformers", pipeline_tag="sentence-similarity", tags=tags)
    return page_template(TEMPLATE, as_text=as_text).render(
        data=of_hub.to_yaml(),
        name=name,
        base=own.get("base", "another model"),
        named_on_push=NAMED_ON_PUSH,
        titles=titles,
        between="" if titles in ("", LEFT_OUT) else repr(TITLES[titles]),
        figures=figures,
        measures=list(next(iter(figures.values()), ())),
        certain=any(bounds for of in figures.values() for _, bounds in of.values()),
        asked=asked,
        chosen=chosen,
        partners=partners_of(chosen.get("winner", "")),
        steps=own["steps"],
        made_of=own["made_of"],
    )
