"""`stillhouse queries export`: exports feedback from a service as train queries for the next refresh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import whole_folder, write_json
from stillhouse.core.errors import InputError
from stillhouse.core.terminal import show
from stillhouse.pipeline.parser import Parser, flag

EXAMPLES = """\
LOG is the folder passed to `stillhouse serve --log-queries`; the service may be running. The command writes three files
to FOLDER: queries.jsonl and qrels/train.tsv, which `ingest` adds to its train queries (setting train_queries), and
export.json, which counts what was left out and why.

A pair is kept if enough clients clicked it or marked it relevant, and more than marked it not relevant. The share of
votes per client is limited, so that no single client can steer the retriever.

examples:
  stillhouse queries export asked clicked
  stillhouse refresh https://git.example/search/releases.git --train-queries clicked"""


def main(argv: Sequence[str]) -> int:
    from stillhouse.corpus.feedback_votes import LEAST_CLIENTS, MOST_SHARE

    parser = Parser("queries", "Exports feedback on a service's answers as train queries.", EXAMPLES)
    parser.add_argument("action", choices=("export",), help="export: write the current content of the log")
    parser.add_argument("log", metavar="LOG", type=Path, help="the log folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder to write to")
    flag(
        parser,
        "--most-share SHARE",
        f"the largest share of the votes that one client may have (default: {MOST_SHARE})",
        float,
        MOST_SHARE,
    )
    flag(
        parser,
        "--least-clients N",
        f"how many clients must support a pair (default: {LEAST_CLIENTS})",
        int,
        LEAST_CLIENTS,
    )
    arguments = parser.parse(argv)
    facts = export(arguments.log, arguments.folder, arguments.most_share, arguments.least_clients)
    show(f"wrote {facts['queries']:,} train queries with {facts['qrels']:,} passages to {arguments.folder}")
    for reason, count in facts["rejected"].items():
        show(f"left out {count:,} of {facts['votes']:,} votes: {reason}")
    return 0


def export(log: Path, folder: Path, most_share: float, least_clients: int) -> dict[str, Any]:
    """Writes the train queries and returns the content of export.json. Raises `InputError` for a log without
    feedback."""
    from stillhouse.corpus.feedback_votes import Vote, choose, query_id
    from stillhouse.serving.feedback_log import read_feedback

    if folder.exists():
        raise InputError(f"{folder} already exists; choose a new folder")
    if not 0 < most_share <= 1:
        raise InputError(f"--most-share must be above 0 and at most 1, not {most_share}")
    if least_clients < 1:
        raise InputError(f"--least-clients must be 1 or more, not {least_clients}")
    votes = [
        Vote(each.query, each.passage_id, each.client, -1 if each.kind == "not_relevant" else 1, each.at)
        for each in read_feedback(log)
    ]
    chosen = choose(votes, most_share, least_clients)
    facts = {
        "queries": len(chosen.pairs),
        "qrels": sum(map(len, chosen.pairs.values())),
        "votes": chosen.votes,
        "most_share": most_share,
        "least_clients": least_clients,
        "rejected": dict(chosen.rejected),
    }
    lines = [{"_id": query_id(text), "text": text} for text in chosen.pairs]
    qrels = [(query_id(text), id, "1") for text, ids in chosen.pairs.items() for id in ids]
    with whole_folder(folder) as staging:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (staging / "queries.jsonl").write_text(text, encoding="utf-8")
        (staging / "qrels").mkdir()
        table = "".join("\t".join(row) + "\n" for row in [("query-id", "corpus-id", "score"), *qrels])
        (staging / "qrels" / "train.tsv").write_text(table, encoding="utf-8")
        write_json(staging / "export.json", facts)
    return facts
