"""Small corpora in the format of BEIR, for tests that read a source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_beir(
    folder: Path,
    passages: Iterable[str | Mapping[str, object]] = (),
    questions: Iterable[str] | Mapping[str, str] = (),
    **judged: Iterable[int | tuple[str, str]],
) -> Path:
    """Write passages and questions, and for each split the pairs of a question and its relevant passage.

    Texts without ids become `p0`, `p1`, … and `q0`, `q1`, …; a pair that is a number is `q` and `p` with this number.
    """
    (folder / "qrels" if judged else folder).mkdir(parents=True, exist_ok=True)
    rows = [{"_id": f"p{n}", "title": "", "text": p} if isinstance(p, str) else p for n, p in enumerate(passages)]
    asked = questions if isinstance(questions, Mapping) else {f"q{n}": text for n, text in enumerate(questions)}
    for name, lines in (("corpus", rows), ("queries", [{"_id": id, "text": text} for id, text in asked.items()])):
        if lines:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for split, pairs in judged.items():
        named = [(f"q{pair}", f"p{pair}") if isinstance(pair, int) else pair for pair in pairs]
        text = "".join(f"{question}\t{passage}\t1\n" for question, passage in named)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + text)
    return folder
