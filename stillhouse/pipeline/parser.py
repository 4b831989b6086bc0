"""A command-line parser whose errors are one sentence that names the nearest valid flag."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stillhouse.core.config import nearest, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.terminal import show


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `InputError` and leaves exiting to `stillhouse.cli.main`."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"stillhouse {command}",
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The parsed arguments. Raises `InputError` for an unknown flag and for a missing or misplaced value."""
        namespace, unknown = self.parse_known_args(argv)
        for word in unknown:
            if word.startswith("-"):
                flag = word.split("=")[0]
                raise InputError(f"{self.prog} has no flag {flag}; {nearest(flag, self._flags())}")
        if unknown:
            raise InputError(f"{self.prog} takes no argument {unknown[0]!r}; see `{self.prog} --help`")
        return namespace

    def _flags(self) -> list[str]:
        return [flag for flag in self._option_string_actions if flag.startswith("--")]

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {re.sub('^argument ', '', message)}; see `{self.prog} --help`")


def flag(
    group: argparse._ActionsContainer,
    words: str,
    help: str,
    type: Callable[[str], Any] | None = None,
    default: Any = None,
    *,
    many: bool = False,
    **more: Any,
) -> None:
    """Adds a flag to a parser or group: `--name VALUE`, or `--name` alone for a switch. `many`: it may be repeated."""
    name, _, metavar = words.partition(" ")
    if not metavar:
        how: dict[str, Any] = {"action": "store_true"}
    elif many:
        how = {"metavar": metavar, "type": type, "action": "append", "default": []}
    else:
        how = {"metavar": metavar, "type": type, "default": default}
    group.add_argument(name, help=help, **how, **more)


def run_action(
    command: str, help: str, actions: Mapping[str, Callable[[Sequence[str]], int]], argv: Sequence[str]
) -> int:
    """Runs one of the actions of a command, or shows its help; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        show(*help.rstrip("\n").split("\n"))
        return 0
    refuse_unknown(argv[0], actions, f"stillhouse {command} has no action")
    return actions[argv[0]](argv[1:])


def output_folder(text: str) -> Path:
    """The `type` of every argument that names a folder to write into; tests find these arguments by it."""
    return _place(text, "folder", Path.is_dir)


def named_values(words: Sequence[str], flag: str) -> dict[str, str]:
    """The values of a repeated flag such as `--parameter name=value`, by name."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or name in given:
            raise InputError(f"{flag} {word}: write NAME=VALUE, each name once")
        given[name] = value
    return given


def output_file(text: str) -> Path:
    """The `type` of every argument that names a file to write."""
    return _place(text, "file", lambda path: not path.is_dir())


def source_text(text: str) -> str:
    """The `type` of an argument that names a corpus. An empty one would mean the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the source is empty; give one, for example 'sample', or leave the flag out")
    return text


def _place(text: str, kind: str, fits: Callable[[Path], bool]) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"the path is empty; give a {kind}")
    path = Path(text)
    try:
        path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise argparse.ArgumentTypeError(f"{text} is a broken link; choose another path") from None
        return path
    except PermissionError:  # reported when it is written to
        return path
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise argparse.ArgumentTypeError(f"{text!a} cannot be a {kind} ({why}); choose another path") from None
    if not fits(path):
        raise argparse.ArgumentTypeError(f"{text} is not a {kind}; choose another path")
    return path


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=min(shutil.get_terminal_size().columns, 120))

    def _expand_help(self, action: argparse.Action) -> str:
        """The text with the value of `%(default)s` or `%(default)g`; any other `%` is an ordinary character."""
        text = self._get_help_string(action) or ""
        return re.sub(r"%\(default\)[sg]", lambda found: found.group() % {"default": action.default}, text)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Keeps the line breaks of a help text, for example in a list of choices."""
        lines = []
        for part in text.splitlines():
            indent = part[: len(part) - len(part.lstrip())]
            hanging = indent + "  " if indent else ""
            lines += textwrap.wrap(part.strip(), width, initial_indent=indent, subsequent_indent=hanging)
        return lines
