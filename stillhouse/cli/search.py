"""`stillhouse search`: shows ranked passages for a typed question, or prints them as JSON for programs."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core import context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing, watched
from stillhouse.core.terminal import show, visible, visible_json
from stillhouse.corpus.titles import shown_title
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.parser import Parser, flag
from stillhouse.pipeline.step_command import add_context_flags, environment

if TYPE_CHECKING:
    from stillhouse.corpus.fields import Where
    from stillhouse.search.searcher import Hit, Searcher

INPUTS = {"corpus": ARTIFACTS / "ingest" / "corpus"}
INPUTS |= {name: ARTIFACTS / "best" / name for name in ("retriever", "index", "hybrid")}
WIDEST = 100
JSON = """\
with --json, each question prints one line to stdout:
  {"question": "...", "hits": [{"rank": 1, "score": 0.83, "passage_id": "...", "title": "...", "text": "...",
   "fields": {"product": "vpn", ...}}, ...]}
a hit that stands for its document also has "document_id" and "section".
Without a QUESTION, each line of stdin is a question. Empty lines are skipped, and nothing else is printed.
"""
EXAMPLES = """\
examples:
  stillhouse search how do bats find their prey
  stillhouse search
  stillhouse search --where product=vpn,mail --where 'date>=2024-01-01' how do I connect
  stillhouse search --json --top 20 < questions.txt > answers.jsonl

"""


def search_parser() -> Parser:
    parser = Parser(
        "search",
        "Answers a question with the retriever's top-ranked passages. Without a question, it prompts for one.",
        EXAMPLES + JSON,
    )
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question; quotes are not needed")
    for name, text in (("corpus", "the corpus"), ("retriever", "the bi-encoder"), ("index", "its index")):
        flag(parser, f"--{name} FOLDER", f"{text} (default: {INPUTS[name].as_posix()})", Path)
    flag(
        parser,
        "--hybrid FOLDER",
        f"whether and how to add BM25 (default: {INPUTS['hybrid'].as_posix()}, unless --retriever or --index is given)",
        Path,
    )
    flag(parser, "--dense", "search without BM25, even if the run chose hybrid search")
    flag(parser, "--top N", "how many hits to show (default: %(default)s)", int, 5)
    parser.add_argument(
        "--documents",
        action=argparse.BooleanOptionalAction,
        help="show each document once, with its best passage (default: if passages were split or qrels name documents)",
    )
    flag(
        parser,
        "--where CONDITION",
        "only passages whose fields match: product=vpn, product=vpn,mail (any of them), product!=vpn, "
        "'date>=2024-01-01'; also > <= <. If repeated, all must match",
        many=True,
    )
    flag(parser, "--json", "print one JSON object per question, as described below")
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = search_parser().parse(argv)
    if arguments.top < 1:
        raise InputError(f"--top must be at least 1, not {arguments.top}")
    folders = chosen_folders(arguments)
    for name, folder in folders.items():
        if not folder.is_dir():
            raise InputError(
                f"--{name} {folder} does not exist; run `stillhouse run` in a workspace (`stillhouse new`) to make it, "
                "or give another folder"
            )
    where = conditions(folders["corpus"], arguments.where) if arguments.where else None
    with environment(arguments):
        quiet = context.quiet()
        with watched("search", quiet):
            searcher = open_searcher(folders)
        answer = answer_in_json if arguments.json else answer_in_text
        for question in questions(arguments.question, prompt=not arguments.json):
            # Not around the loop: a person who types nothing may be silent.
            with watched("search", quiet), doing("searching"):
                hits = searcher.search(question, arguments.top, where, arguments.documents)
            answer(question, hits)
    return 0


def conditions(corpus: Path, texts: Sequence[str]) -> Where:
    """Typed conditions on the fields of a corpus. Raises `InputError` for one that fits no field."""
    from stillhouse.corpus.fields import typed_conditions
    from stillhouse.corpus.store import Corpus

    return typed_conditions(Corpus.open(corpus).field_types, texts)


def chosen_folders(arguments: argparse.Namespace) -> dict[str, Path]:
    """The given folders, and the run's winner for the others. Another retriever or index is searched without BM25."""
    folders = {name: getattr(arguments, name) or INPUTS[name] for name in INPUTS}
    if arguments.dense and arguments.hybrid:
        raise InputError("--dense searches without BM25 and --hybrid with it; leave out one of them")
    if arguments.dense or ((arguments.retriever or arguments.index) and not arguments.hybrid):
        del folders["hybrid"]
    return folders


def open_searcher(folders: dict[str, Path]) -> Searcher:
    context.hush_libraries()
    with doing("loading PyTorch"):
        from stillhouse.search.searcher import Searcher

    return Searcher.open(**folders)


def questions(words: Sequence[str], prompt: bool) -> Iterator[str]:
    """The question of the command line, or else those that are typed or piped, until the end of the input.

    With `prompt`, asks for each question until an empty line. Raises `InputError` for input that is not UTF-8.
    """
    if words:
        yield refuse_bytes(" ".join(words))
        return
    if prompt:
        show("Type a question, or press Enter to quit.")
    while True:
        try:
            question = input("question> " if prompt else "").strip()
        except EOFError:
            if prompt:
                show("")
            return
        except UnicodeDecodeError:
            raise InputError("a question is not valid UTF-8; convert the file, for example with iconv") from None
        if question:
            yield refuse_bytes(question)
        elif prompt:
            return


def refuse_bytes(question: str) -> str:
    """Refuses a question that is not valid UTF-8, which the system passes on as lone surrogates."""
    if any("\ud800" <= character <= "\udfff" for character in question):
        raise InputError(f"the question {question!r} is not valid UTF-8; type it in a UTF-8 terminal")
    return question


def answer_in_json(question: str, hits: Sequence[Hit]) -> None:
    show(visible_json({"question": question, "hits": [asdict(hit) for hit in hits]}))


def answer_in_text(question: str, hits: Sequence[Hit]) -> None:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    lines = [line for hit in hits for line in ("", *layout(hit, width))]
    show(*(lines[1:] or ["no passage found"]))


def layout(hit: Hit, width: int) -> list[str]:
    """One hit, for people: a line with rank, title, score and id, and the indented lines of its text.

    The hit of a document has the section after the title.
    """
    names = shown_title(hit.title, getattr(hit, "section", ""))
    title, text = (visible(re.sub(r"[\t\n\v\f\r ]+", " ", each).strip()) for each in (names, hit.text))
    first = f"{hit.rank:2}. {title or '(no title)'}  [{hit.score:.4f}]  {visible(hit.passage_id)}"
    about = [f"{name}: {', '.join(value) if isinstance(value, list) else value}" for name, value in hit.fields.items()]
    about = textwrap.wrap(visible(" · ".join(about)), width=width, initial_indent="    ", subsequent_indent="    ")
    return [first, *about, *textwrap.wrap(text, width=width, initial_indent="    ", subsequent_indent="    ")]
