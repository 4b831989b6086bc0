"""`stillhouse models`: lists good base models, and which of them are on this machine."""

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core.terminal import show
from stillhouse.models.model_table import at_hand, base_models
from stillhouse.pipeline.parser import Parser, flag

HEADS = {
    "name": "model",
    "language": "language",
    "parameters": "parameters",
    "licence": "licence",
    "width": "width",
    "length": "tokens",
    "ndcg10": "BEIR",
    "source": "figure from",
}


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "models",
        "Lists good base models: their language, size and licence, the width of their vectors, how many tokens they\n"
        "read, and their published mean nDCG@10 on the 15 English data sets of BEIR. Models marked * are on this "
        "machine.",
        "examples:\n"
        "  stillhouse models\n"
        "  stillhouse models --table ours.csv\n"
        "  stillhouse new manuals --source ~/manuals --model auto\n"
        "  stillhouse new manuals --source ~/manuals --model ours.csv",
    )
    flag(parser, "--table FILE", "a table of your own: a CSV file with the header of the shipped one", Path)
    rows = base_models(parser.parse(argv).table)
    shown = [HEADS, *(row | {"name": f"{'*' if at_hand(row['name']) else ' '} {row['name']}"} for row in rows)]
    widths = {name: max(len(row[name]) for row in shown) for name in HEADS}
    show(*("  ".join(f"{row[name]:{width}}" for name, width in widths.items()).rstrip() for row in shown))
    return 0
