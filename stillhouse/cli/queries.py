"""`stillhouse queries export`: exports feedback from a service as train queries for the next refresh, or its questions
without passages."""

from __future__ import annotations

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

With --all, FOLDER gets every question of the log, without passages: `stillhouse label-queries` finds them. A question
that a client repeats counts once, and one client has no larger share of the questions than of the votes.

examples:
  stillhouse queries export asked clicked
  stillhouse queries export asked questions --all
  stillhouse refresh https://git.example/search/releases.git --train-queries clicked"""


def main(argv: Sequence[str]) -> int:
    from stillhouse.corpus.feedback_votes import LEAST_CLIENTS

    parser = Parser("queries", "Exports users' feedback on a service's answers as train queries.", EXAMPLES)
    parser.add_argument("action", choices=("export",), help="export: write the log's current content to FOLDER")
    parser.add_argument("log", metavar="LOG", type=Path, help="the log folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder to write to")
    flag(
        parser,
        "--least-clients N",
        f"how many different clients must support a pair (default: {LEAST_CLIENTS}), or with --all ask a question "
        "(default: 1)",
        int,
    )
    flag(parser, "--all", "export all questions, without passages")
    arguments = parser.parse(argv)
    least = arguments.least_clients
    if least is None:
        least = 1 if arguments.all else LEAST_CLIENTS
    facts = export(arguments.log, arguments.folder, least, arguments.all)
    kind = "questions" if arguments.all else f"train queries with {facts['qrels']:,} passages"
    show(f"wrote {facts['queries']:,} {kind} to {arguments.folder}")
    for reason, count in facts["rejected"].items():
        show(f"left out {count:,} of {facts['votes']:,} {'questions' if arguments.all else 'votes'}: {reason}")
    return 0


def export(log: Path, folder: Path, least_clients: int, whole: bool = False) -> dict[str, Any]:
    """Writes the train queries, or the questions of the `whole` log; returns the content of export.json.

    Raises `InputError` for a log without feedback, or without questions.
    """
    from stillhouse.corpus.feedback_votes import Vote, choose, query_id
    from stillhouse.corpus.label_files import write_qrels, write_queries
    from stillhouse.serving.feedback_log import read_feedback
    from stillhouse.serving.query_log import read_asked

    if folder.exists():
        raise InputError(f"{folder} already exists; choose a new folder")
    if least_clients < 1:
        raise InputError(f"--least-clients must be 1 or more, not {least_clients}")
    if whole:
        votes = [Vote(query, "", client, 1, at) for query, client, at in read_asked(log)]
    else:
        votes = [
            Vote(each.query, each.passage_id, each.client, -1 if each.kind == "not_relevant" else 1, each.at)
            for each in read_feedback(log)
        ]
    chosen = choose(votes, least_clients)
    facts = {
        "queries": len(chosen.pairs),
        "qrels": 0 if whole else sum(map(len, chosen.pairs.values())),
        "votes": chosen.votes,
        "least_clients": least_clients,
        "rejected": dict(chosen.rejected),
    }
    with whole_folder(folder) as staging:
        write_queries(staging, {query_id(text): text for text in chosen.pairs})
        if not whole:
            pairs = ((query_id(text), id) for text, ids in chosen.pairs.items() for id in ids)
            write_qrels(staging, "train", pairs)
        write_json(staging / "export.json", facts)
    return facts
