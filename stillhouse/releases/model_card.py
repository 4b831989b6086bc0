"""The winner of a run as a folder for the Hugging Face Hub, whose card has the figures of the test questions.

They are not in the card that `select-best` wrote, because they exist only after `evaluate`.
"""

import os
from pathlib import Path

from stillhouse.core.artifacts import Manifest, copy_content, read_manifest, remove, whole_folder
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.recipes import load_recipe
from stillhouse.pipeline.steps.model_card import CARD, OWN, passed_on, render
from stillhouse.pipeline.workspace import PARAMS
from stillhouse.releases.refresh.graph import CHOSEN
from stillhouse.releases.refresh.run import released_figures


@doing("writing the model with its card")
def export_winner(folder: Path, target: Path) -> None:
    """Copies the winner of the run in the workspace `folder` to `target`, with its card.

    Raises `InputError` if `target` exists, if the winner is missing or damaged, and if it was not evaluated.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} already exists; choose a new folder")
    retriever = folder / ARTIFACTS / CHOSEN["retriever"]
    best = read_manifest(retriever)
    card = render_card(folder, best, target.name)
    with whole_folder(target) as staging:
        copy_content(retriever, staging)
        remove(staging / CARD)
        (staging / CARD).write_text(card, encoding="utf-8")


def render_card(folder: Path, best: Manifest, name: str) -> str:
    """The card of a workspace's winner, whose manifest is `best`, with the title `name` and the figures on test.

    Raises `InputError` if the evaluation is missing or of another winner.
    """
    from huggingface_hub import EvalResult

    from stillhouse.search.winner import partners_of

    root = folder / ARTIFACTS
    whole = graph_of(load_recipe(folder / PARAMS), str(folder / PARAMS))
    run, evaluated = (read_manifest(root / of, verify=False) for of in (CHOSEN["run"], "evaluate/evaluation"))
    if run.inputs["retriever"] != best.digest or evaluated.inputs.get("run/best") != run.digest:
        raise InputError(f"{folder} holds an evaluation of another winner; run `stillhouse run` there first")
    retriever = best.facts["retriever"]
    systems = {"this model": f"{retriever}_run/run"}
    if partners := partners_of(best.facts["winner"]):
        systems[f"this model with {' and '.join(partners)}"] = CHOSEN["run"]
    systems |= {"the base model": "zero_shot_run/run"} if retriever != "zero_shot" else {}
    systems["BM25"] = "bm25/run"
    figures = {
        system: {measure: found["measures"][measure] for measure in evaluated.config["measures"]}
        for system, place in systems.items()
        if (found := released_figures(whole, place, root))
    }
    asked = f"{evaluated.facts['test_queries']:,} test questions"
    if evaluated.facts["labels"] == "synthetic":
        asked += ", made from the passages"
    data = passed_on(root / CHOSEN["retriever"])
    if OWN not in data:
        raise InputError(f"{folder} holds a run of an earlier version; run `stillhouse run` there first")
    data[OWN]["made_of"][best.digest] = "this model: the manifest of its run"
    data |= {"model_name": name}
    data["eval_results"] = [
        EvalResult("information-retrieval", "own", asked, measure, mean, task_name="Information Retrieval")
        for measure, (mean, _) in figures.get("this model", {}).items()
    ]
    return render(data, name, root / CHOSEN["retriever"], (asked, figures), best.facts)
