"""`stillhouse queries export`: exports feedback from a service as train queries for the next refresh, or its questions
without passages."""

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

A pair is kept if it was clicked or marked relevant often enough, and more often than it was marked not relevant.

With --all, FOLDER gets every question of the log, without passages: `stillhouse label-queries` finds them.

examples:
  stillhouse queries export asked clicked
  stillhouse queries export asked questions --all
  stillhouse refresh https://git.example/search/releases.git --train-queries clicked"""


def main(argv: Sequence[str]) -> int:
    from stillhouse.corpus.feedback_votes import LEAST_VOTES

    parser = Parser("queries", "Exports users' feedback on a service's answers as train queries.", EXAMPLES)
    parser.add_argument("action", choices=("export",), help="export: write the log's current content to FOLDER")
    parser.add_argument("log", metavar="LOG", type=Path, help="the log folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder to write to")
    flag(
        parser,
        "--least-votes N",
        f"how many votes must support a pair (default: {LEAST_VOTES}), or with --all how often a question must have "
        "been asked (default: 1)",
        int,
    )
    flag(parser, "--all", "export all questions, without passages")
    arguments = parser.parse(argv)
    least = arguments.least_votes
    if least is None:
        least = 1 if arguments.all else LEAST_VOTES
    facts = export(arguments.log, arguments.folder, least, arguments.all)
    kind = "questions" if arguments.all else f"train queries with {facts['qrels']:,} passages"
    show(f"wrote {facts['queries']:,} {kind} to {arguments.folder}")
    for reason, count in facts["rejected"].items():
        show(f"left out {count:,} of {facts['votes']:,} {'questions' if arguments.all else 'votes'}: {reason}")
    return 0


def export(log: Path, folder: Path, least_votes: int, whole: bool = False) -> dict[str, Any]:
    """Writes the train queries, or the questions of the `whole` log; returns the content of export.json.

    Raises `InputError` for a log without feedback, or without questions.
    """
    from stillhouse.corpus.feedback_votes import Vote, choose, query_id
    from stillhouse.corpus.sources.labels import write_qrels, write_queries
    from stillhouse.serving.query_log import FEEDBACK, QUERIES, read_log

    if folder.exists():
        raise InputError(f"{folder} already exists; choose a new folder")
    if least_votes < 1:
        raise InputError(f"--least-votes must be 1 or more, not {least_votes}")
    if whole:
        votes = [Vote(row["query"], "") for row in read_log(log, QUERIES)]
    else:
        votes = [
            Vote(row["query"], row["passage_id"], -1 if row["kind"] == "not_relevant" else 1)
            for row in read_log(log, FEEDBACK)
        ]
    chosen = choose(votes, least_votes)
    facts = {
        "queries": len(chosen.pairs),
        "qrels": 0 if whole else sum(map(len, chosen.pairs.values())),
        "votes": chosen.votes,
        "least_votes": least_votes,
        "rejected": dict(chosen.rejected),
    }
    with whole_folder(folder) as staging:
        write_queries(staging, {query_id(text): text for text in chosen.pairs})
        if not whole:
            pairs = ((query_id(text), id) for text, ids in chosen.pairs.items() for id in ids)
            write_qrels(staging, "train", pairs)
        write_json(staging / "export.json", facts)
    return facts
