"""`stillhouse publish`: writes a release to a vector store, and puts it into use there."""

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core import context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.terminal import show
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.parser import Parser, flag
from stillhouse.pipeline.step_command import add_context_flags, environment

EXAMPLES = """\
URL is postgresql://HOST/DATABASE (PostgreSQL with pgvector), qdrant:http://HOST:6333, qdrant:FOLDER, lancedb:FOLDER or
lancedb:s3://BUCKET/PATH. opensearch:FILE writes a bulk file for OpenSearch or Elasticsearch. #NAME at the end names the
releases there (default: stillhouse).

examples:
  stillhouse publish in-use --to postgresql://db.example/search
  stillhouse publish --rollback --to postgresql://db.example/search
  stillhouse serve in-use --store postgresql://db.example/search
"""


def main(argv: Sequence[str]) -> int:
    parser = Parser("publish", "Writes a release to a vector store, checks it and puts it into use there.", EXAMPLES)
    parser.add_argument(
        "release",
        nargs="?",
        metavar="FOLDER",
        type=Path,
        default=ARTIFACTS / "best",
        help="a release, as `stillhouse release fetch` or a run writes it (default: %(default)s)",
    )
    flag(parser, "--to URL", "the store", required=True)
    flag(parser, "--rollback", "return to the release before the one in use")
    flag(parser, "--forget-changes", "publish the corpus alone: forget what was added to the store or deleted from it")
    add_context_flags(parser.add_argument_group("how it runs"))
    arguments = parser.parse(argv)
    bulk = arguments.to.startswith("opensearch:")
    if (arguments.rollback or bulk) and arguments.forget_changes:
        raise InputError("--forget-changes is for a release that is written to a store; leave it out")
    if bulk and arguments.rollback:
        raise InputError("--rollback cannot change a file; point the store's alias at the previous index")
    with environment(arguments), watched("publish", context.quiet()):
        context.hush_libraries()
        from stillhouse.cli.serve import open_release
        from stillhouse.serving.source import FolderSource
        from stillhouse.serving.stores.publish import publish, roll_back, write_bulk
        from stillhouse.serving.stores.store import open_store

        store = None if bulk else open_store(arguments.to)
        if store and arguments.rollback:
            table = roll_back(store)
        else:
            release = open_release(FolderSource(arguments.release))
            if release.has_bm25:
                context.say(f"its ranking is {release.about()['ranking']}; a store ranks by the retriever alone")
            if not store:
                show(f"{arguments.to} has the passages of the index {write_bulk(release, arguments.to)}")
                return 0
            watching = context.Context(context.work_root(), context.device(), quiet=context.quiet())
            table = publish(release, store, watching, arguments.forget_changes)
    show(f"{table} is in use in {store.address}#{store.name}")
    return 0
