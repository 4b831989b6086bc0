"""Corpora under the names that the documents give, and workspaces made so small that a whole run takes seconds."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import HTTPServer
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from beir_source import write_beir

from stillhouse.corpus.sources.options import sample_folder
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import configs, load_recipe
from stillhouse.pipeline.small import small

ARTICLES = 11
OWN = ("source", "format", "max_articles")
"""Settings of `ingest` that keep the workspace's values."""


def write_articles(folder: Path) -> Path:
    """The first articles of the sample, without questions."""
    folder.mkdir(parents=True)
    for path in sorted((sample_folder() / "articles").glob("*.md"))[:ARTICLES]:
        shutil.copy(path, folder)
    return folder


def write_corpus(folder: Path) -> Path:
    """The first articles of the sample, with the questions about them."""
    names = tuple(path.stem for path in write_articles(folder / "articles").iterdir())
    (folder / "qrels").mkdir()
    kept = set()
    for path in (sample_folder() / "qrels").glob("*.tsv"):
        head, *rows = path.read_text().splitlines()
        rows = [row for row in rows if row.split("\t")[1].startswith(names)]
        kept |= {row.split("\t")[0] for row in rows}
        (folder / "qrels" / path.name).write_text("\n".join([head, *rows]) + "\n")
    lines = (sample_folder() / "queries.jsonl").read_text().splitlines()
    queries = [line for line in lines if json.loads(line)["_id"] in kept]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    return folder


def write_words(folder: Path, words: tuple[str, ...]) -> None:
    """A passage and a test question for each of the words."""
    write_beir(
        folder, [f"the {word} sings" for word in words], [f"which {word}" for word in words], test=range(len(words))
    )


def asking(passage: str, question: str) -> Callable[[HTTPServer], None]:
    """In place of a page's server, a person who asks about a passage and sees the next one."""

    def serve(server: HTTPServer) -> None:
        body = urlencode({"passage": passage, "question": question}).encode()
        with server, ThreadPoolExecutor() as person:
            seen = person.submit(urlopen, f"http://127.0.0.1:{server.server_port}/", body)
            server.handle_request()
            server.handle_request()
            assert seen.result().status == 200

    return serve


def make_small(words: list[str]) -> None:
    """Shrinks the workspace that a command has just made."""
    if words[:2] == ["stillhouse", "new"]:
        shrink(Path(words[2]))


def shrink(workspace: Path) -> None:
    """Caps the sizes in params.yaml as `run --small` does: the stages, objectives and the source stay as they are."""
    path = workspace / "params.yaml"
    recipe = load_recipe(path)
    given = configs(recipe, str(path))
    content = yaml.safe_load(path.read_text())
    for step in graph_of(recipe):
        before, after = given[step.name], small(step, given[step.name])
        for field in dataclasses.fields(after):
            value = getattr(after, field.name)
            if value != getattr(before, field.name) and (step.kind, field.name) not in {("ingest", own) for own in OWN}:
                content[step.section] = (content.get(step.section) or {}) | {field.name: value}
    path.write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False))
