"""`stillhouse serve`: serves one release over HTTP, and replaces it without downtime."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core import context
from stillhouse.core.artifacts import digest_json
from stillhouse.core.config import build, field_types, setting
from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.parser import Parser, flag
from stillhouse.pipeline.step_command import add_context_flags, add_setting_flags, describe, environment, with_settings
from stillhouse.serving.settings import Limits
from stillhouse.serving.source import FolderSource, Source, repository_of

if TYPE_CHECKING:
    from stillhouse.serving.release import Release
    from stillhouse.serving.stores.store import Store

TOKEN = "STILLHOUSE_SERVE_TOKEN"
LOOK_ELSEWHERE = 30.0
"""Seconds between two checks of a repository for a new release."""
EXAMPLES = f"""\
FOLDER holds one release as `stillhouse release fetch` writes it: retriever/, index/, corpus/ and, if the release has
them, hybrid/ and reranker/. In a workspace it is artifacts/best, with the corpus in artifacts/ingest/corpus. The
service compares their digests, and does not start if they do not belong together.

You can pass a git repository of releases instead of FOLDER. The command then fetches and serves the release in use, or
the one given by --release.

Both are watched for new releases. A new release is checked and warmed up before it answers. A damaged one is
refused, and the old one keeps answering. FOLDER may be a symbolic link.

examples:
  stillhouse serve
  stillhouse release fetch --target in-use && stillhouse serve in-use --port 8080
  stillhouse serve git+https://git.example/search/releases.git --host 0.0.0.0
  {TOKEN}=secret stillhouse serve in-use --host 0.0.0.0

  curl localhost:8000/search -H 'Content-Type: application/json' -d '{{"query": "why do bats hunt at night", "top": 3}}'

endpoints:
  /             a search page                /search         ranked passages for queries
  /docs         all endpoints                /v1/embeddings  vectors, for OpenAI clients
  /info         release, digests, limits     /v1/rerank /v2/rerank  for clients of Cohere and Jina
  /metrics      for Prometheus               /embed /rerank
  /health /ready for probes                                  same as text-embeddings-inference
                                             /v2/...         KServe's Open Inference Protocol V2
  /feedback     clicks and judgements, with --log-queries FOLDER
  /documents    new and deleted documents, with --store URL and a token

See docs/serve.md for details.
"""
LOGGED = ("retention_days",)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of a service, besides its folders and limits."""

    release: str = setting("", "the release to serve from a repository, such as v1.2.0; empty = the one in use")
    host: str = setting("127.0.0.1", "the address to listen on")
    port: int = setting(8000, "the port to listen on; 0 picks a free one", minimum=0, maximum=65535)
    model: str = setting("retriever", "the model's name in the API")
    watch: float | None = setting(
        None, f"seconds between checks for a new release; null = 1, or {LOOK_ELSEWHERE:g} in a repository", minimum=0.01
    )
    grace: float = setting(30.0, "seconds to wait for open requests at shutdown", minimum=0.01)
    precision: str = setting(
        "auto",
        "precision of passage vectors: auto = as `index` encodes them, in bf16 where that is faster; query vectors "
        "are in fp32, as in `stillhouse search`",
        choices=("auto", "fp32"),
    )
    retention_days: float = setting(30.0, "delete log files older than this", minimum=1e-6, maximum=36_500)


def serve_parser() -> Parser:
    parser = Parser("serve", "Serves a release (model, index and corpus) over HTTP.", EXAMPLES)
    parser.add_argument(
        "place",
        nargs="?",
        metavar="FOLDER|REPOSITORY",
        default=str(ARTIFACTS / "best"),
        help="a release, or a git repository of releases (default: %(default)s)",
    )
    flag(parser, "--fetch-into FOLDER", "where to put fetched releases (default: in the work folder)", Path)
    flag(parser, "--store URL", "search in this store, which `stillhouse publish` writes (docs/publish.md)", default="")
    group = parser.add_argument_group("query log (docs/serve.md describes its content)")
    flag(group, "--log-queries FOLDER", "log queries and results in this folder, and accept /feedback", Path)
    add_setting_flags(group, Options, LOGGED)
    flag(parser, "--log-requests", "log one line per request, without its text")
    add_setting_flags(parser, Options, field_types(Options).keys() - LOGGED)
    group = parser.add_argument_group("limits")
    for field in fields(Limits):
        most = "" if field.name == "deadline" else "most-"
        words, kind = f"--{most}{field.name.replace('_', '-')} N", type(field.default)
        flag(group, words, describe(field), kind, field.default, dest=field.name)
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def serve_arguments(argv: Sequence[str]) -> argparse.Namespace:
    return with_settings(serve_parser().parse(argv), Options)


def main(argv: Sequence[str]) -> int:
    arguments = serve_arguments(argv)
    limits = check(arguments)
    with environment(arguments):
        serve(arguments, limits)
    return 0


def check(arguments: argparse.Namespace) -> Limits:
    repository = repository_of(arguments.place)
    if arguments.watch is None:
        arguments.watch = LOOK_ELSEWHERE if repository else 1.0
    if arguments.release and not repository:
        raise InputError(
            f"--release is for a git repository of releases, but {arguments.place} is not one; leave it out"
        )
    return build(Limits, {name: getattr(arguments, name) for name in field_types(Limits)}, "the limits")


def serve(arguments: argparse.Namespace, limits: Limits) -> None:
    context.hush_libraries()
    from stillhouse.serving.app import listen, make_service, run
    from stillhouse.serving.open_releases import OpenReleases
    from stillhouse.serving.query_log import QueryLog
    from stillhouse.serving.stores.store import open_store

    store = open_store(arguments.store) if arguments.store else None
    token = os.environ.get(TOKEN, "")
    refuse_token(token)
    with listen(arguments.host, arguments.port) as listening:

        def opened(source: Source) -> Release:
            return open_release(source, arguments.precision, store)

        log = arguments.log_queries
        queries = QueryLog(log, arguments.retention_days, context.say) if log else None
        releases = OpenReleases(source_of(arguments), opened, context.say)
        service = make_service(
            releases,
            limits,
            log=context.say,
            token=token,
            model=arguments.model,
            log_requests=arguments.log_requests,
            queries=queries,
        )
        run(service, listening, arguments.grace, arguments.watch, context.say)


def refuse_token(token: str) -> None:
    """Raises `InputError` for a token that no client can send in a header, such as one that ends with a line break."""
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise InputError(
            f"${TOKEN} has a line break, a leading or trailing space or a non-ASCII character, so no client could send "
            "it in a header; remove that (`printf` adds no line break at the end, `echo` does)"
        )


def source_of(arguments: argparse.Namespace) -> Source:
    """The source that the arguments name: a folder, or a repository whose releases are fetched into one."""
    from stillhouse.serving.released_source import ReleasedSource

    repository = repository_of(arguments.place)
    if not repository:
        return FolderSource(Path(arguments.place))
    folder = arguments.fetch_into or context.work_root() / "releases" / digest_json(repository)[:12]
    return ReleasedSource(repository, folder, context.say, arguments.release)


def open_release(source: Source, precision: str = "fp32", store: Store | None = None) -> Release:
    """Opens, checks and warms up what a source holds, to be searched in `store` if there is one."""
    from stillhouse.serving.release import Release, StoreRelease

    how = context.Context(work=context.work_root(), device=context.device(), quiet=True)
    folders = source.folders()
    release = StoreRelease(folders, store, how, precision) if store else Release(folders, how, precision)
    release.origin = source.origin()
    release.warm()
    return release
