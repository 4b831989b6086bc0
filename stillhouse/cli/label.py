"""`stillhouse label`: shows passages on a local web page, for which the user writes questions."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import HTTPServer
from pathlib import Path

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.config import build
from stillhouse.core.context import QUIET, WORK_ROOT, hush_libraries, quiet
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.terminal import show
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.parser import Parser, flag, output_folder, source_text
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step

INGESTED = Path("ingest", "corpus")

EXAMPLES = """\
SOURCE is what `ingest` reads, a corpus that it wrote, or a workspace. FOLDER gets queries.jsonl and qrels/dev.tsv,
which the setting dev_queries of `ingest` takes; every question is saved at once. Run the command again to continue.

examples:
  stillhouse label ~/manuals questions
  stillhouse new work --source ~/manuals --questions questions"""


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "label", "Shows passages of a corpus on a local web page, so that you can write questions for them.", EXAMPLES
    )
    parser.add_argument("source", metavar="SOURCE", type=source_text, help="a source, a corpus or a workspace")
    parser.add_argument("folder", metavar="FOLDER", type=output_folder, help="where to save the questions")
    flag(parser, "--passages N", "how many passages to write a question for (default: 20)", int, 20)
    flag(parser, "--port PORT", "the port to listen on; 0 picks a free one (default: 8000)", int, 8000)
    flag(parser, "--seed N", "seed of the random order of the passages (default: 42)", int, 42)
    arguments = parser.parse(argv)
    if arguments.passages < 1 or arguments.seed < 0:
        raise InputError("--passages must be 1 or more, and --seed 0 or more")
    hush_libraries()
    with ExitStack() as held:
        with watched("label", quiet()):
            held.enter_context(only_process(arguments.folder))
            corpus = held.enter_context(opened(arguments.source))
            from stillhouse.serving.labelling import Labelling, Labels, make_server

            labels = Labels(arguments.folder, arguments.source, corpus)
            server = make_server(Labelling(corpus, labels, arguments.passages, arguments.seed), arguments.port)
        show(f"write questions at http://127.0.0.1:{server.server_port}/ and end with Ctrl-C")
        serve(server)
        show(f"{len(labels.texts)} questions are saved in {arguments.folder}; run the command again to continue")
    return 0


def serve(server: HTTPServer) -> None:
    """Serves until Ctrl-C."""
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


@contextmanager
def opened(source: str) -> Iterator[Corpus]:
    """The corpus of a source, a corpus folder or a workspace; the corpus of a source exists while the block runs."""
    for folder in (Path(source), Path(source) / ARTIFACTS / INGESTED):
        if (folder / MANIFEST).is_file() and (folder / "passages.parquet").is_file():
            yield Corpus.open(folder)
            return
    step = find_step("ingest")
    with tempfile.TemporaryDirectory() as place, environment_variables({WORK_ROOT: place, QUIET: "yes"}):
        corpus = Path(place) / "corpus"
        execute(step, build(step.config, {"source": source, "queries": "source"}, "label"), {}, {"corpus": corpus})
        yield Corpus.open(corpus)
