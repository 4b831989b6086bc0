"""The hook of mkdocs.yml: pages from outside docs/, a page of settings for each step, and diagrams as SVG."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import mmdr
from mkdocs.structure.files import File, Files

from stillhouse.cli import COMMANDS
from stillhouse.pipeline.step_command import describe, own_first
from stillhouse.pipeline.steps.registry import steps
from stillhouse.pipeline.steps.spec import Step

REPOSITORY = "https://github.com/stillhouse/stillhouse"
ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PARTS = ("notes", "about")
"""Files of benchmarks that are parts of its pages."""


def on_config(config: Any) -> Any:
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    reference.append({"Settings of each step": [{step: address(step)} for step in steps()]})
    return config


def on_files(files: Files, config: Any) -> Files:
    for path in sorted((ROOT / "benchmarks").glob("*.md")):
        if path.stem.rpartition(".")[2] not in PARTS:
            files.append(File.generated(config, f"benchmarks/{path.name}", abs_src_path=str(path)))
    for name, step in steps().items():
        files.append(File.generated(config, address(name), content=settings_page(step)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lists the commands, draws diagrams, and points links to where the site has a page, or else to the repository."""
    if page.file.src_uri == "reference/commands.md":
        helped = {name: text for name, (text, _) in COMMANDS.items()} | {
            f"[{name}](settings/{name}-step.md)": step.help for name, step in steps().items()
        }
        rows = [f"| {name} | {text} |" for name, text in helped.items()]
        markdown = "\n".join([markdown, "| command | what it does |", "|---|---|", *rows])
    place = page.file.src_uri if page.file.src_uri.startswith("benchmarks/") else f"docs/{page.file.src_uri}"
    folder, here = Path(place).parent, Path(page.file.src_uri).parent

    def moved(found: re.Match[str]) -> str:
        target = os.path.normpath(folder / found[1])
        uri = target.removeprefix("docs/")
        if files.get_file_from_path(uri):
            return os.path.relpath(uri, here)
        return f"{REPOSITORY}/blob/main/{target}" if (ROOT / target).exists() else found[1]

    drawn = DIAGRAM.sub(lambda found: f'<div class="diagram">{picture(found[1])}</div>', markdown)
    return LINK.sub(moved, drawn)


def picture(diagram: str) -> str:
    """A diagram as SVG that is not scaled down until nobody can read it: a wide one scrolls."""
    svg = mmdr.render(diagram).svg()
    width, *_ = re.findall(r"max-width:([\d.]+)px", svg)
    return svg.replace('width="100%"', f'width="{min(float(width), max(760, 0.65 * float(width))):.0f}"', 1)


def address(step: str) -> str:
    return f"reference/settings/{step}-step.md"  # `index.md` would be the folder's own page


def settings_page(step: Step) -> str:
    rows = [f"| `{field.name}` | {describe(field).replace('|', chr(92) + '|')} |" for field in own_first(step.config)]
    return "\n".join(
        [
            f"# {step.name}\n",
            f"{step.help[0].upper()}{step.help[1:]}.",
            f"[Inputs and outputs](../../steps.md), `stillhouse {step.name} --help`.\n",
            *(["| setting | meaning |", "|---|---|", *rows] if rows else ["It has no settings."]),
        ]
    )
