"""The winner of a run as a folder for the Hugging Face Hub: the model with a card (`README.md`).

The card is not in the folder that `select-best` wrote: it needs figures that exist only after `evaluate`, and the name
of the base model, which may be a place and is in no manifest.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Manifest, copy_content, read_manifest, whole_folder
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.pages import as_text, page_template
from stillhouse.corpus.titles import LEFT_OUT, TITLES
from stillhouse.models.model_place import PACKAGE
from stillhouse.pipeline.graph import ARTIFACTS, CORPUS, START, GraphStep, graph_of
from stillhouse.pipeline.graph_steps import step_of
from stillhouse.pipeline.model_table import MANY, base_models
from stillhouse.pipeline.recipes import configs, load_recipe, moved
from stillhouse.pipeline.start_model import place_of
from stillhouse.pipeline.steps.execute import READ
from stillhouse.pipeline.workspace import PARAMS
from stillhouse.releases.refresh.graph import CHOSEN
from stillhouse.releases.refresh.run import released_figures

CARD = "README.md"
TEMPLATE = Path(__file__).with_suffix(".jinja")
STARTS_FROM = ("encoder", "trained", "init", "start")
"""The inputs of steps that are the model which a step changes, the most direct one first."""
SHOWN = (
    *("weights", "layers", "pooling", "objective", "contrastive", "similarity", "temperature", "distilled", "alpha"),
    *("negatives_per_query", "negatives_depth", "batch_size", "learning_rate", "epochs", "max_steps", "lora_rank"),
    *("matryoshka_dims", "seed"),
)
"""The settings and facts of steps that a card shows."""
LICENCE = ("license", "license_name", "license_link")
NAMED_ON_PUSH = "sentence_transformers_model_id"
"""`push_to_hub` of sentence-transformers replaces it with the model's name on the Hub."""


@doing("writing the model with its card")
def export_winner(folder: Path, target: Path) -> None:
    """Copies the winner of the run in the workspace `folder` to `target`, with a model card.

    Raises `InputError` if `target` exists, if the winner is missing or damaged, and if it was not evaluated.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} already exists; choose a new folder")
    retriever = folder / ARTIFACTS / CHOSEN["retriever"]
    best = read_manifest(retriever)
    card = render_card(folder, best, target.name)
    with whole_folder(target) as staging:
        copy_content(retriever, staging)
        (staging / CARD).write_text(card, encoding="utf-8")


def render_card(folder: Path, best: Manifest, name: str) -> str:
    """The card of a workspace's winner, whose manifest is `best`: the Hub's metadata, and a page with the title `name`.

    Raises `InputError` if the evaluation is missing or of another winner.
    """
    from huggingface_hub import EvalResult, ModelCardData

    from stillhouse.search.winner import partners_of

    root, where = folder / ARTIFACTS, str(folder / PARAMS)
    recipe = load_recipe(folder / PARAMS)
    whole = {step.name: step for step in graph_of(recipe, where)}
    model: str = configs(moved(recipe, folder, Path()), where)[step_of(START)].model
    run, evaluated = (read_manifest(root / of, verify=False) for of in (CHOSEN["run"], "evaluate/evaluation"))
    if run.inputs["retriever"] != best.digest or evaluated.inputs.get("run/best") != run.digest:
        raise InputError(f"{folder} holds an evaluation of another winner; run `stillhouse run` there first")

    steps = list(_steps(whole, best.facts["retriever"]))
    systems = {"this model": f"{best.facts['retriever']}_run/run"}
    if partners := partners_of(best.facts["winner"]):
        systems[f"this model with {' and '.join(partners)}"] = CHOSEN["run"]
    systems |= {"the base model": "zero_shot_run/run"} if len(steps) > 1 else {}
    systems["BM25"] = "bm25/run"
    figures = {
        system: found["measures"]
        for system, place in systems.items()
        if (found := released_figures(whole.values(), place, root))
    }
    asked = f"{evaluated.facts['test_queries']:,} test questions"
    if evaluated.facts["labels"] == "synthetic":
        asked += ", made from the passages"
    base = as_text(model if _is_hub_name(model) or model.startswith(PACKAGE) else Path(model).name)
    data = ModelCardData(
        **_base_card(model),
        base_model=model if _is_hub_name(model) else None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", "stillhouse"],
        model_name=name,
        eval_results=[
            EvalResult("information-retrieval", "own", asked, measure, mean, task_name="Information Retrieval")
            for measure, (mean, _) in figures.get("this model", {}).items()
        ],
    )
    made = f"It was trained from {base}" if len(steps) > 1 else f"It is {base}, chosen unchanged"
    corpus = read_manifest(root / CORPUS["corpus"], verify=False)
    start = read_manifest(root / START, verify=False)
    made_of = {
        f"corpus: {_contents(corpus.facts)}": corpus.digest,
        f"base model: {base}": start.facts.get(READ, {}).get("model", start.digest),
        "this model: the manifest of its run": best.digest,
    }
    titles = corpus.facts.get("titles", "")
    return page_template(TEMPLATE, as_text=as_text).render(
        data=data.to_yaml(),
        name=name,
        made=made,
        named_on_push=NAMED_ON_PUSH,
        titles=titles,
        between="" if titles in ("", LEFT_OUT) else repr(TITLES[titles]),
        figures=figures,
        measures=evaluated.config["measures"],
        asked=asked,
        chosen=best.facts,
        partners=partners,
        steps=[(step, _settings(root / place)) for place, step in reversed(steps)],
        made_of=made_of,
    )


def _is_hub_name(model: str) -> bool:
    from huggingface_hub.utils import validate_repo_id

    with suppress(ValueError):
        validate_repo_id(model)
        return not Path(model).is_dir()
    return False


def _base_card(model: str) -> dict[str, Any]:
    """The language and licence of a base model: from its own card if that is on this machine, else from our table."""
    from huggingface_hub import ModelCard

    with suppress(InputError):  # the model may have been somewhere that this machine lacks
        place = place_of(model)
        if place and (place / CARD).is_file():
            of_base = ModelCard.load(place / CARD).data
            return {key: of_base.get(key) for key in ("language", *LICENCE)}
    row = next((row for row in base_models() if row["name"] == model), None)
    if row is None:
        return {}
    language = "multilingual" if row["language"] == MANY else row["language"]
    return {"language": language, "license": row["licence"].lower()}


def _contents(facts: Mapping[str, Any]) -> str:
    questions = ", ".join(f"{count:,} {split}" for split, count in facts.get("queries", {}).items())
    return f"{facts.get('passages', 0):,} passages, questions: {questions or 'none'}"


def _steps(whole: Mapping[str, GraphStep], system: str) -> Iterator[tuple[str, GraphStep]]:
    """The outputs of the steps that changed the model, with their steps: the last one first, the base model last."""
    place = whole[step_of(CHOSEN["retriever"])].inputs[f"candidates/{system}"]
    while True:
        step = whole[step_of(place)]
        yield place, step
        if place == START:
            return
        place = next(step.inputs[port] for port in STARTS_FROM if port in step.inputs)


def _settings(folder: Path) -> str:
    made = read_manifest(folder, verify=False)
    known = made.config | made.facts
    return ", ".join(f"{key} {known[key]}" for key in SHOWN if known.get(key) not in (None, ""))
