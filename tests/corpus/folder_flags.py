"""Turns the fuzzer's bytes into a small tree of foreign files and the odd name of a folder in it, for a folder flag.

The bytes give, in this order, the command, the name, and the folder, name and kind of each entry of the tree. After
the command, the tree is compared with its former state. Everything is in a temporary folder, which no name leaves.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from stillhouse.artifacts import whole_folder, write_manifest
from stillhouse.cli import new as new_command
from stillhouse.errors import InputError, access_errors
from stillhouse.experiments.comparison.run import refuse_foreign_use
from stillhouse.experiments.zero_shot.figures import FILES
from stillhouse.own_files import own_file, own_files, refuse_foreign_file, refuse_foreign_files
from stillhouse.workflow import workspace
from stillhouse.workflow.graph import ARTIFACTS, USES, needed
from stillhouse.workflow.in_process import refuse_foreign_outputs
from stillhouse.workflow.parser import Parser, output_file, output_folder

MINE = b"years of work\n"
FOLDERS = ("there", "there/artifacts", "there/artifacts/ingest", "there/artifacts/ingest/corpus", "there/runs", ".")
NAMES = (
    *("artifacts", "ingest", "corpus", "runs", "metrics.json", "per_query.parquet", "manifest.json", "data.txt"),
    *(".stillhouse", "made.json", ".git", ".gitignore", ".dvc", ".dvcignore", "params.yaml", "dvc.yaml", "dvc.lock"),
    *("report.html", "shared", "mlm", "notes.txt", "there", "a b", "$HOME", "-x", "*", "\u202e", "\n", "\udcff"),
    *(".corpus.lock", "..data", "results-1", "x" * 255),
)
KINDS = ("file", "folder", "link to a file", "link to a folder", "link to itself", "link to nothing", "pipe")
PLACES = (
    *("there", ".", "", " ", "there/", "./there", "there/../there", "there/new", "new/er", "there/runs", "there/a b"),
    *("there/metrics.json", "there/notes.txt/x", "x" * 300, "there/" + "x" * 256, "a\0b", "\ud800", "-x", "~", "$HOME"),
    *("there/artifacts", "there/.git", "/proc/nowhere/x", "/dev/null/x", "there/\udcff", "there/\n", "there/\u202e"),
)
"""Names that a user may give; a byte of 128 or more stands for a name from the bytes after it."""
SEEDS = [
    bytes([command, place, *entries])
    for command in range(5)
    for place, entries in (
        (0, ()),
        (1, (0, 4, 0, 0, 3, 1)),
        (0, (0, 4, 0, 1, 1, 1, 2, 2, 1, 3, 6, 0, 3, 20, 0)),
        (0, (0, 11, 0, 0, 13, 0, 0, 0, 3)),
        (2, ()),
        (4, (0, 8, 0)),
        (0, (0, 5, 2, 0, 4, 4, 0, 17, 6)),
        (0, (0, 14, 0)),
    )
]


def parsed(text: str, kind: Callable[[str], Path]) -> Path:
    parser = Parser("command", "A command.")
    parser.add_argument("--folder", type=kind)
    found: Path = parser.parse([f"--folder={text}"]).folder
    return found


def new(text: str) -> None:
    """Run `stillhouse new` without its slow parts: `Repo.init` of DVC, and the many stages of dvc.yaml."""
    with (
        mock.patch("dvc.repo.Repo.init", start_dvc),
        mock.patch.object(workspace, "render", lambda *given: "stages: {}"),
    ):
        new_command.main(["--source", "sample", "--recipe", "others/recipe.yaml", "--", text])


def start_dvc(folder: str, *, no_scm: bool) -> mock.Mock:
    """Write the files of `Repo.init`: it fails if there is a .dvc, and it keeps a .dvcignore."""
    (Path(folder) / ".dvc").mkdir()
    (Path(folder) / ".dvc" / "config").write_text("[core]\n    no_scm = True\n")
    if not (Path(folder) / ".dvcignore").exists():
        (Path(folder) / ".dvcignore").write_text("# Add patterns\n")
    return mock.Mock()


def zero_shot(text: str) -> None:
    folder = parsed(text, output_folder)
    refuse_foreign_files(folder, FILES)
    with own_files(folder, FILES) as staging:
        (staging / "metrics.json").write_text("{}")
        (staging / "runs" / "one").mkdir(parents=True)
        (staging / "runs" / "one" / "bm25.trec").write_text("")


def run(text: str) -> None:
    root = parsed(text, output_folder) / ARTIFACTS
    uses = needed(USES, ["bm25"])
    refuse_foreign_outputs(uses, root)
    for use in uses:
        for path in use.output_paths(root).values():
            write_artifact(path)


def compare(text: str) -> None:
    folder = parsed(text, output_folder)
    place = folder / ARTIFACTS / "ingest"
    refuse_foreign_use(folder, place)
    write_artifact(place / "corpus")
    with own_file(folder / "timings.json") as path:
        path.write_text("{}")


def metrics(text: str) -> None:
    path = parsed(text, output_file)
    refuse_foreign_file(path)
    with own_file(path) as file:
        file.write_text("{}")


COMMANDS = (zero_shot, run, compare, metrics, new)


def write_artifact(path: Path) -> None:
    with whole_folder(path) as staging:
        (staging / "data.txt").write_text("ours")
        write_manifest(staging, "step", {}, {}, {})


def make_tree(data: bytes) -> None:
    """Makes the tree in the current folder and leaves out impossible entries."""
    Path("others/folder").mkdir(parents=True)
    for path in (Path("others/file"), Path("others/folder/notes.txt"), Path("others/folder/manifest.json")):
        path.write_bytes(MINE)
    Path("others/recipe.yaml").write_text("ingest: {source: elsewhere}\n")
    Path("there").mkdir()
    for start in range(0, len(data) - 2, 3):
        folder, name, kind = data[start : start + 3]
        path = Path(FOLDERS[folder % len(FOLDERS)]) / NAMES[name % len(NAMES)]
        with contextlib.suppress(OSError):  # below a file, or in place of another entry
            if any(above.is_symlink() for above in path.parents):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            make_entry(path, KINDS[kind % len(KINDS)])


def make_entry(path: Path, kind: str) -> None:
    others = Path("others").absolute()
    if kind == "file":
        with path.open("xb") as file:
            file.write(MINE)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        targets = {"link to a file": others / "file", "link to a folder": others / "folder", "link to itself": path}
        path.symlink_to(targets.get(kind, others / "nothing").absolute())


def entries() -> dict[Path, bytes | str]:
    """Return every entry below the current folder: the bytes of a file, the target of a link, else its kind."""
    found: dict[Path, bytes | str] = {}
    for path in Path().rglob("*"):
        if path.is_symlink():
            found[path] = str(path.readlink())
        elif path.is_file():
            found[path] = path.read_bytes()
        else:
            found[path] = "folder" if path.is_dir() else "pipe"
    return found


def name_of(data: bytes) -> tuple[str, bytes]:
    """The name that a user gives, and the rest of the bytes."""
    if not data or data[0] < 128:
        return PLACES[data[0] % len(PLACES) if data else 0], data[1:]
    text = data[1 : 1 + data[0] - 128].decode("utf-8", "surrogateescape").lstrip("/")
    text = text.replace("..", ".")  # no name leaves the temporary folder
    return f"there/{text}" if data[0] % 2 else text, data[1 + data[0] - 128 :]


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def check_folder_flag(data: bytes, folder: Path) -> None:
    """Runs a command on a tree of foreign files: it may refuse or add files, but never change or remove any."""
    name, rest = name_of(data[1:])
    with inside(folder):
        make_tree(rest)
        before = entries()
        refused: InputError | None = None
        try:
            with contextlib.redirect_stdout(io.StringIO()), access_errors():
                COMMANDS[data[0] % len(COMMANDS) if data else 0](name)
        except InputError as error:
            refused = error
        after = entries()
        for path, content in before.items():
            now = after.get(path)
            extended = path.name in (".gitignore", ".dvcignore") and isinstance(now, bytes) and now.startswith(MINE)
            assert now == content or extended, path
    if refused:
        raise refused
