"""Do SimLM's stages add up after each pre-training, with what a few minutes of one GPU allow?

The part `quality` of `gpu`. First an encoder with random weights learns masked tokens of all texts at hand for
`START_SECONDS`. From it, every chain of gpu_quality.yaml runs all stages of the recipe `simlm` on one data set, after
one pre-training, several chains at once. Chains that do not end within `SECONDS` are stopped; a later call goes on
where they were.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command import HERE, command
from benchmarks.machine import machine
from benchmarks.objectives import random_encoder
from benchmarks.page import from_template, write_page
from benchmarks.quality_run import MEASURE, values_of
from benchmarks.run_steps import step, step_once
from benchmarks.sources import rows, write
from stillhouse.core.artifacts import whole_folder
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.recipes import find_recipe, load_recipe

SETTINGS = "gpu_quality.yaml"
RECIPE = "simlm"
SETS = {"squad-passages": "SQuAD passages", "medquad": "MedQuAD", "scifact": "SciFact"}
SYSTEMS = {
    "bm25": "bm25",
    "zero_shot": "zero_shot_run",
    "retriever_1": "retriever_1_run",
    "retriever_2": "retriever_2_run",
    "reranked": "reranked_run",
    "distilled": "distilled_run",
}
"""The systems of SimLM Table 6, by the step that searched with each."""
SECONDS, START_SECONDS, AT_ONCE = 240.0, 75.0, 6
"""For everything, of these for the start, and the chains that share the GPU."""
CALIBRATION, MOST_STEPS = 20, 20_000
"""Steps by which the speed of the start's training is measured, and the most that it gets."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_quality", __doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a machine without a GPU")
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    settings = read_settings(arguments.tiny)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"STILLHOUSE_QUIET": "1", "STILLHOUSE_WORK": str(folder / "work")}
    make_start(folder / "start", arguments.data, settings, 1.0 if arguments.tiny else START_SECONDS)
    chains = [(name, arm) for name, arm in settings["chains"] if (arguments.data / name).is_dir()]
    run_chains(chains, folder, arguments.data, settings, begun + SECONDS)
    write_page(arguments.page, list(page(chains, folder, settings)))
    return 0 if any(ranks_in(place_of(folder, *chain)) for chain in chains) else 1


def read_settings(tiny: bool) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((HERE / SETTINGS).read_text(encoding="utf-8"))
    changes = settings.pop("tiny")
    if tiny:
        settings["start_model"] |= changes["start_model"]
        settings["start"] |= changes["start"]
        for section, values in changes["recipe"].items():
            settings["recipe"][section] = settings["recipe"][section] | values
        settings["chains"] = settings["chains"][:2]
    return settings


def make_start(folder: Path, data: Path, settings: Mapping[str, Any], seconds: float) -> None:
    """Trains an encoder on all texts at hand for about `seconds`, measured by its first steps."""
    folder.mkdir(exist_ok=True)
    if (folder / "encoder" / "manifest.json").is_file():
        return
    gather(data, folder / "source")
    random_encoder(folder / "random", settings["start_model"])
    step_once("ingest", {}, {"corpus": folder / "corpus"}, source=str(folder / "source"), queries="source")
    step_once(
        "tokenize",
        {"corpus": folder / "corpus", "tokenizer": folder / "random"},
        {"tokens": folder / "tokens"},
        max_length=settings["start"]["max_length"],
    )
    inputs = {"tokens": folder / "tokens", "init": folder / "random"}
    took = []
    for tries, steps in enumerate((CALIBRATION, 3 * CALIBRATION)):
        begun = time.monotonic()
        made = {name: folder / f"{name}-{tries}-{time.time_ns()}" for name in ("encoder", "curves")}
        step("pretrain", inputs, made, **settings["start"], max_steps=steps, eval_steps=steps)
        took.append(time.monotonic() - begun)
    rate = 3 * CALIBRATION / took[1]  # the first training starts the GPU
    steps = int(min(MOST_STEPS, max(CALIBRATION, rate * seconds)))
    made = {name: folder / name for name in ("encoder", "curves")}
    begun = time.monotonic()
    step("pretrain", inputs, made, **settings["start"], max_steps=steps, eval_steps=max(1, steps // 4))
    facts = {"steps": steps, "seconds": time.monotonic() - begun}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def gather(data: Path, into: Path) -> None:
    """All passages of the data sets at hand, as one corpus without questions."""
    if into.is_dir():
        return
    present = [source for source in (*SETS, "wiki-intro") if (data / source).is_dir()]
    passages = (
        row | {"_id": f"{source}-{number}"}
        for source in present
        for number, row in enumerate(rows(data / source / "corpus.jsonl"))
    )
    with whole_folder(into) as staging:
        write(staging / "corpus.jsonl", passages)


def run_chains(
    chains: Sequence[tuple[str, str]], folder: Path, data: Path, settings: Mapping[str, Any], end: float
) -> None:
    """Runs every chain in a process of its own, several at once, and stops those that are not done at the end."""
    waiting = list(chains)
    running: dict[tuple[str, str], tuple[subprocess.Popen[bytes], float]] = {}
    environment = os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < AT_ONCE:
                name, arm = waiting.pop(0)
                place = place_of(folder, name, arm)
                place.mkdir(parents=True, exist_ok=True)
                recipe = recipe_of(name, arm, folder / "start" / "encoder", data / name, settings)
                (place / "params.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
                words = [sys.executable, "-m", "stillhouse.cli", "run", "--params", "params.yaml", "--work", "work"]
                log = (place / "log").open("ab")
                started = subprocess.Popen(words, cwd=place, stdout=log, stderr=log, env=environment)
                running[name, arm] = started, time.monotonic()
            time.sleep(0.2)
            for chain in [chain for chain, (process, _) in running.items() if process.poll() is not None]:
                process, begun = running.pop(chain)
                took = time.monotonic() - begun
                print(
                    f"{' '.join(chain)}: ended with {process.returncode} after {took:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        for chain, (process, _) in running.items():
            print(f"{' '.join(chain)}: stopped", file=sys.stderr, flush=True)
            process.terminate()
        for process, _ in running.values():
            process.wait()


def place_of(folder: Path, name: str, arm: str) -> Path:
    return folder / "chains" / f"{name}-{arm}"


def recipe_of(name: str, arm: str, start: Path, source: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe `simlm` with the settings of this benchmark."""
    recipe: dict[str, Any] = load_recipe(find_recipe(RECIPE))
    for section, values in settings["recipe"].items():
        recipe[section] = (recipe.get(section) or {}) | values
    recipe["fetch_model"]["model"], recipe["ingest"]["source"] = str(start), str(source.resolve())
    recipe["pretraining"]["objective"] = settings["arms"][arm]
    recipe["retriever_1_unpretrained"] = recipe.get("retriever_1_unpretrained", {}) | {"max_steps": 1}  # not shown
    return recipe


def page(chains: Sequence[tuple[str, str]], folder: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    start = json.loads((folder / "start" / "facts.json").read_text(encoding="utf-8"))
    about = json.loads((folder / "start" / "encoder" / "manifest.json").read_text(encoding="utf-8"))["facts"]
    corpus = Corpus.open(folder / "start" / "corpus")
    yield from ("# Every stage, from an encoder trained here", "", f"Settings: `{SETTINGS}`.", "")
    yield machine("torch", "transformers")
    yield ""
    given = {"size": settings["start_model"], "start": start, "batch": settings["start"]["batch_size"], "about": about}
    yield from from_template("gpu_quality", **given, passages=corpus.passage_count, measure=MEASURE)
    for name in SETS:
        arms = [arm for chain, arm in chains if chain == name]
        found = {arm: ranks_in(place_of(folder, name, arm)) for arm in arms}
        found = {arm: ranks for arm, ranks in found.items() if ranks}
        if not found:
            continue
        yield from ("", f"## {SETS[name]}", "")
        yield f"| pre-training | {' | '.join(f'`{system}`' for system in SYSTEMS)} |"
        yield "|---|" + "---|" * len(SYSTEMS)
        for arm, ranks in found.items():
            cells = [f"{sum(ranks[system]) / len(ranks[system]):.3f}" if system in ranks else "" for system in SYSTEMS]
            yield f"| `{arm}` | {' | '.join(cells)} |"


def ranks_in(place: Path) -> dict[str, list[float]]:
    """Of each system that the chain has searched with, the measure of every test question."""
    artifacts = place / "artifacts"
    runs = {name: artifacts / step / "run" for name, step in SYSTEMS.items()}
    runs = {name: run for name, run in runs.items() if (run / "manifest.json").is_file()}
    return values_of(Corpus.open(artifacts / "ingest" / "corpus"), runs)[MEASURE] if runs else {}
