"""A module of under 70 lines with one importer is part of it, unless it is apart for a reason given here."""

from __future__ import annotations

from collections import Counter

from test_import_direction import ROOT, imports, own_modules

LINES = 70
APART = {
    "components/render.py's rule for lines, which benchmarks use too": ("filled_markdown",),
    "one loss per file, beside the others": ("pretraining.pairs.sampled_softmax",),
    "one reader of a source per file, a row of the table of readers": (
        "corpus.sources.passage_jsonl",
        "corpus.sources.plain_article",
    ),
    "one router per file, as for the other endpoints": ("serving.feedback_api",),
    "a program that pods start": ("kubernetes.pods.torchrun",),
    "it imports transformers, for seconds, and not every use needs it": ("serving.pair_scores",),
    "its importer already has more than 300 lines": (
        "corpus.sources.passage_columns",
        "kubernetes.pods.around_step",
        "pipelines.manifests",
    ),
}


def test_small_modules_with_one_importer_have_a_reason() -> None:
    modules = own_modules()
    importers: Counter[str] = Counter()
    for path in modules.values():
        importers.update({found for name in imports(path) for found in (name, name.rpartition(".")[0])})
    small = {
        name.removeprefix("stillhouse.")
        for name, path in modules.items()
        if path.name != "__init__.py"
        and importers[name] == 1
        and len(path.read_text(encoding="utf-8").splitlines()) < LINES
    }
    assert small == {name for names in APART.values() for name in names}
    assert all((ROOT / "stillhouse" / f"{name.replace('.', '/')}.py").is_file() for name in small)
