"""Foreign text cannot control the terminal: only printable text and the program's own line breaks reach it.

The tests decide with Unicode's own tables, character by character, what is harmful.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_source import write_beir
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stillhouse import cli
from stillhouse.core import context, terminal

TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
HOSTILE = "a\x1b[2J\rb\x9b31m\u202ec\u2066d\u2028e\x85f\nstillhouse: all is well"
SCRIPTS = "Ein Übermaß, 漢字　かな, עברית, العربية, नमस्ते, naïve, ½ €"
JOINED = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
"""An emoji of a family and a Persian word: their joiners and non-joiners are part of the text."""
ORDINARY = f"{SCRIPTS} {JOINED}"
texts = st.text(
    st.one_of(st.sampled_from("\n\r\t\x00\x07\x1b\x7f\x85\x9b\u2028\u202e\u2067\ufeff[2J1. "), st.characters())
)


def harmful(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in TURNING


def is_calm(text: str) -> bool:
    return not any(harmful(character) for character in text.replace("\n", ""))


@given(st.text(st.characters(), min_size=1))
@example(HOSTILE)
@example(ORDINARY)
@example("".join(map(chr, range(0x3000))))
@example("".join(map(chr, range(0xD7F0, 0x11000))))
def test_visible_escapes_only_harmful_characters(text: str) -> None:
    assert is_calm(terminal.visible(text)) and "\n" not in terminal.visible(text)
    kept = "".join(each for each in text if not harmful(each) and not "\ufff9" <= each <= "\ufffb")
    assert terminal.visible(kept) == kept
    assert terminal.visible(text).encode("ascii", "backslashreplace") == "".join(
        each if each in kept else each.encode("unicode_escape").decode() for each in text
    ).encode("ascii", "backslashreplace")


def say(text: str) -> None:
    context.say(f"[step] {text}")


def log(text: str) -> None:
    context.Context(Path(), quiet=False).log(f"[step] {text}")


@pytest.mark.parametrize("write", [say, log, terminal.warn, terminal.show])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
@example(text=HOSTILE)
def test_a_line_of_a_log_is_one_line(
    write: Callable[[str], None], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(context.QUIET, "")
    write(text)
    out, err = capsys.readouterr()
    others = (out + err).removesuffix("\n").split("\n")[1:]
    assert is_calm(out + err) and all(line.startswith("  ") for line in others)


# Every way in which foreign text reaches the command line.
ERRORS: dict[str, Callable[[str], list[str]]] = {
    "command": lambda text: [text],
    "flag": lambda text: ["ingest", f"--{text}"],
    "value": lambda text: ["ingest", "--format", text],
    "number": lambda text: ["ingest", "--seed", text],
    "source": lambda text: ["ingest", "--source", f"nowhere/{text}", "--corpus", "corpus"],
    "folder": lambda text: ["search", "--corpus", f"nowhere/{text}", "why"],
    "recipe": lambda text: ["run", "--recipe", f"nowhere/{text}"],
    "params": lambda text: ["ingest", "--params", f"nowhere/{text}", "--corpus", "corpus"],
    "settings": lambda text: ["ingest", "--params", "hostile.yaml", "--corpus", "corpus"],
}


@pytest.mark.parametrize("name", ERRORS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts.filter(lambda text: "\0" not in text and text.strip()))
@example(text=HOSTILE)
def test_errors_cannot_forge_terminal_output(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {"ingest": {text.encode(errors="replace").decode(): HOSTILE}, "seed": HOSTILE}
    Path("hostile.yaml").write_text(json.dumps(content))
    capsys.readouterr()
    code = cli.main(ERRORS[name](text))
    out, err = capsys.readouterr()
    assert is_calm(out + err)
    if code:
        first, *others = err.removesuffix("\n").split("\n")
        assert code == 2 and first.startswith("stillhouse: ") and all(line.startswith("  ") for line in others)


def test_crashes_cannot_forge_terminal_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(argv: list[str]) -> int:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(cli, "_dispatch", crash)
    assert cli.main([]) == 1
    err = capsys.readouterr().err
    assert "RuntimeError" in err and is_calm(err)
    assert [line for line in err.splitlines() if line.startswith("stillhouse:")] == [err.splitlines()[-1]]


def test_a_hostile_source_cannot_forge_log_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ingest and validate log names of files, ids, titles, texts and reasons."""
    source = tmp_path / "a\x1b[31m\nstillhouse: b\u202e"
    rows = [{"_id": f"p{n}", "title": HOSTILE, "text": f"{HOSTILE} {n}"} for n in range(3)]
    rows += [{"_id": HOSTILE, "text": "x"}, {"_id": "p\0", "text": "x"}, {"_id": "p0", HOSTILE: HOSTILE}]
    write_beir(source, rows, {"q": HOSTILE}, test=[("q", "p1")])
    with (source / "corpus.jsonl").open("a") as file:
        file.write(f"{HOSTILE}\n")
    monkeypatch.setenv(context.QUIET, "")
    monkeypatch.setenv(context.WORK_ROOT, str(tmp_path / "w\x1b[0m"))
    corpus = tmp_path / "corpus\x1b]0;title\x07"
    assert cli.main(["ingest", "--source", str(source), "--corpus", str(corpus)]) == 0
    validation = [
        "validate",
        "--corpus",
        str(corpus),
        "--validation",
        str(tmp_path / "v"),
        "--max-rejected-fraction",
        "0",
    ]
    assert cli.main(validation) in (2, 3)
    out, err = capsys.readouterr()
    assert "rejected 1 × passage: id holds a control character" in err
    bars = re.compile(r"[^\n]*\r")  # the program's own progress bars, which end with a carriage return
    assert is_calm(out + bars.sub("", err))
    assert not any(line.startswith("stillhouse: b") for line in bars.sub("", err).splitlines())


def test_a_closed_pipe_is_not_a_crash() -> None:
    code = "import sys; from stillhouse import cli; sys.exit(cli.main(['--help']))"
    done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.stdout and done.stderr
    done.stdout.close()
    assert done.stderr.read() == "" and done.wait() == 1
