"""The form that starts a run in Kubeflow's user interface, as a page made from a compiled pipeline.

Kubeflow 2.17 shows a field for each parameter, sorted by name and labelled with name and type. A field without a
default is marked `Missing parameter.` until it is filled in. The form shows nothing else about a parameter; the
description of the pipeline's version explains it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from stillhouse.artifacts import digest_json

TYPES = {
    "STRING": "string",
    "NUMBER_INTEGER": "integer",
    "NUMBER_DOUBLE": "double",
    "BOOLEAN": "boolean",
    "LIST": "list",
    "STRUCT": "dict",
}
WIDTH, FIELD_HEIGHT, MARGIN = 900, 62, 190
EDGE = 20
"""Pixels below the last line."""
LINE, LINE_HEIGHT = 118, 19
"""Characters per line of the description, and the line height."""
DIGEST = "form"
"""The PNG text field with the digest of what the picture shows."""
STYLE = """
body{margin:0;padding:22px 30px;font:14px/19px Roboto,Arial,sans-serif;color:#202124;background:#fff}
h1{font-size:18px;font-weight:500;margin:0 0 8px}h2{font-size:15px;font-weight:500;margin:14px 0 4px}
.field{position:relative;margin:13px 0 0;width:600px}
.field label{position:absolute;left:10px;top:-8px;padding:0 4px;background:#fff;font-size:12px;color:#5f6368}
.field div{border:1px solid #bdc1c6;border-radius:4px;padding:13px 14px;height:19px;white-space:nowrap;overflow:hidden}
.field p{margin:1px 0 0;font-size:12px;color:#d93025}code{background:#f1f3f4}.description{font-size:13px;color:#3c4043}
"""


def parameters_of(spec: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Name, type and default of each field, as shown; a field with the default None is required."""
    found = []
    for name, entry in sorted(spec["root"].get("inputDefinitions", {}).get("parameters", {}).items()):
        default = entry.get("defaultValue")
        if entry["parameterType"] == "NUMBER_INTEGER" and default is not None:
            default = int(default)
        shown = default if isinstance(default, str) or default is None else json.dumps(default)
        found.append((name, TYPES[entry["parameterType"]], shown))
    return found


def form_page(spec: Mapping[str, Any]) -> str:
    """The page, with the description of the version below the form."""
    fields = "".join(
        f'<div class="field"><label>{escape(name)} - {kind}</label><div>{escape(default or "")}</div>'
        + ("<p>Missing parameter.</p>" if default is None else "")
        + "</div>"
        for name, kind, default in parameters_of(spec)
    )
    description = "<br>".join(map(escape, _description(spec)))
    return (
        f'<!doctype html><html lang=en><meta charset="utf-8"><style>{STYLE}</style><h1>Start a run: '
        f"{escape(spec['pipelineInfo']['name'])}</h1><h2>Run parameters</h2>Specify parameters required by the pipeline"
        f'{fields}<h2>Description of the version</h2><div class="description">{description}</div></html>'
    )


def _description(spec: Mapping[str, Any]) -> list[str]:
    lines = str(spec["pipelineInfo"].get("description", "")).splitlines()
    return [line.replace("`", "") for line in lines if line]


def height_of(spec: Mapping[str, Any]) -> int:
    """The height of the page in pixels."""
    lines = sum(1 + len(line) // LINE for line in _description(spec))
    fields = parameters_of(spec)
    return MARGIN + FIELD_HEIGHT * len(fields) + sum(15 for field in fields if field[2] is None) + LINE_HEIGHT * lines


def form_digest(spec: Mapping[str, Any]) -> str:
    return digest_json([parameters_of(spec), _description(spec)])[:16]


def draw(spec: Mapping[str, Any], path: Path) -> None:
    """Writes the picture of a form with Chromium; the PNG holds the digest of what it shows."""
    from PIL import Image, ImageChops
    from PIL.PngImagePlugin import PngInfo

    with TemporaryDirectory() as place:
        page, shot = Path(place) / "form.html", Path(place) / "form.png"
        page.write_text(form_page(spec), encoding="utf-8")
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--window-size={WIDTH},{height_of(spec)}", f"--screenshot={shot}", page.as_uri()]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        info = PngInfo()
        info.add_text(DIGEST, form_digest(spec))
        whole = Image.open(shot).convert("RGB")
        shown = ImageChops.difference(whole, Image.new("RGB", whole.size, "white")).getbbox()
        assert shown is not None, path
        picture = whole.crop((0, 0, WIDTH, shown[3] + EDGE)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
        picture.save(path, optimize=True, pnginfo=info)


def specs_of(folder: Path) -> dict[str, Any]:
    """The compiled pipelines of `stillhouse pipeline compile`, by picture name."""
    found = {}
    for path in sorted(folder.glob("*/*.yaml")):
        for resource in yaml.load_all(
            path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        ):
            if resource.get("kind") == "PipelineVersion":
                found[f"{path.parent.name}-{path.stem}"] = resource["spec"]["pipelineSpec"]
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m stillhouse.pipelines.run_form", description=__doc__)
    parser.add_argument("pipelines", type=Path, help="the folder of compiled pipelines, such as manifests/pipelines")
    parser.add_argument("pictures", type=Path, help="the folder for the pictures, such as docs/forms")
    arguments = parser.parse_args(argv)
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    for name, spec in specs_of(arguments.pipelines).items():
        draw(spec, arguments.pictures / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
