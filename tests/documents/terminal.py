"""Types documented commands: those of Stillhouse and DVC run in this process, all others as programs."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import takewhile
from pathlib import Path

import pytest
from documented_commands import VARIABLE, Command
from not_run import runs

from stillhouse import cli

Program = Callable[[list[str]], int]


class Terminal:
    """`replaced` maps words of the documents to what is typed instead. `programs` stand in for real ones.

    `after` is called with the words of each command that has ended, to shrink its results.
    """

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        replaced: Mapping[str, str] | None = None,
        programs: Mapping[str, Program] | None = None,
        after: Callable[[list[str]], None] = lambda words: None,
    ) -> None:
        self.home, self.patch, self.after = folder / "home", patch, after
        self.replaced, self.programs = dict(replaced or {}), dict(programs or {})
        self.home.mkdir(parents=True, exist_ok=True)
        # By default, curl does not fail on an answer like 404.
        (self.home / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nnoproxy = *\n")
        patch.setenv("HOME", str(self.home))
        patch.setenv("DVC_NO_ANALYTICS", "1")
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setattr("dvc.stage.run._run", self._stage)
        patch.chdir(folder)

    def type_all(self, commands: Iterable[Command]) -> dict[str, str]:
        """Types what can be run here, and returns what each command printed, by its text."""
        return {command.text: self.type(command) for command in commands if runs(command)}

    def type(self, command: Command) -> str:
        text = command.text
        for documented, instead in self.replaced.items():
            text = text.replace(documented, instead)
        said = ""
        for words, stdin, into in parts(text):
            given = stdin.read_text() if isinstance(stdin, Path) else said if stdin == "|" else ""
            code, said = self._run(words, given)
            assert code == 0, f"{command.place}: {text}: exit code {code}\n{said[-3000:]}"
            if into:
                into.write_text(said)
            self.after(words)
        return said

    def _run(self, words: list[str], stdin: str) -> tuple[int, str]:
        variables = list(takewhile(VARIABLE.match, words))
        name, *rest = words[len(variables) :]
        with self._with(variables):
            name = name.removeprefix(".venv/bin/")
            if name in self.programs:
                return said_by(lambda: self.programs[name](rest), stdin)
            if name == "cd":
                self.patch.chdir(rest[0])
                return 0, ""
            if name == "export":
                for word in rest:
                    self.patch.setenv(*word.split("=", 1))
                return 0, ""
            if name == "stillhouse":
                return said_by(lambda: cli.main(rest), stdin)
            if name == "dvc":
                from dvc.cli import main

                return said_by(lambda: int(main(rest)), stdin)
            done = subprocess.run([name, *rest], input=stdin, capture_output=True, text=True)
            return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    @contextmanager
    def _with(self, variables: list[str]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for variable in variables:
                patch.setenv(*variable.split("=", 1))
            yield

    def _stage(self, executable: str, cmd: str, cwd: str, env: Mapping[str, str], **how: object) -> None:
        """Runs a stage of DVC in this process, which saves the start of a new one."""
        from dvc.stage.exceptions import StageCmdFailedError

        program, *words = shlex.split(cmd)
        assert program == "stillhouse", cmd
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd)
            for name in ("DVC_ROOT", "DVC_STAGE"):
                patch.setenv(name, env[name])
            if cli.main(words):
                raise StageCmdFailedError(cmd, 1)


def said_by(run: Callable[[], int], stdin: str) -> tuple[int, str]:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        code = run()
    return code, out.getvalue()


def parts(text: str) -> Iterator[tuple[list[str], Path | str, Path | None]]:
    """The commands of a line: their words, "|" or the file that they read, and the file that they write."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&|<>")
    lexer.whitespace_split = True
    words: list[str] = []
    stdin: Path | str = ""
    into: Path | None = None
    tokens = list(lexer)
    while tokens:
        token = tokens.pop(0)
        if token in ("<", ">"):
            path = Path(tokens.pop(0)).expanduser()
            stdin, into = (path, into) if token == "<" else (stdin, path)
        elif token in ("&&", "|"):
            yield words, stdin, into
            words, stdin, into = [], "|" if token == "|" else "", None
        else:
            words += expanded(token)
    yield words, stdin, into


def expanded(token: str) -> list[str]:
    """Return a word with ~ expanded, or the files that match it as a pattern."""
    home = re.sub(r"^([A-Z_]+=)?~(?=/)", lambda found: (found[1] or "") + os.environ["HOME"], token)
    found = sorted(str(path) for path in Path().glob(home)) if "*" in home else []
    return found or [home]
