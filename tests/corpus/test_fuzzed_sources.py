"""A source with random damage is read or refused as bad input; nothing crashes, and no row is lost uncounted."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources_to_damage import SOURCES, check_source, write_files

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.detect import open_source

TOKENS = [b"", b"\n", b"\r", b"\t", b'"', b'""', b"'", b",", b"[", b"]", b"{", b"}", b"\\", b"\xff", b"\x00"]
TOKENS += [b"\xc3\xa9", b"<", b">", b"&#55555;", b"#", b" #\n", b"```\n", b"](", b"- - -\n", b"\xe2\x80\xa8"]
TOKENS += [b"\xef\xbb\xbf", b"1.0", b"-1"]
damages = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # position, as a share of the length
        st.integers(0, 12),  # number of bytes removed there
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),  # bytes inserted there
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files_are_read_or_refused(name: str, data: st.DataObject) -> None:
    files = dict(SOURCES[name])
    hurt = data.draw(st.sampled_from(sorted(files)))
    content = files[hurt]
    for place, cut, insert in data.draw(damages):
        at = int(place * (len(content) + 1))
        content = content[:at] + insert + content[at + cut :]
    files[hurt] = content[: data.draw(st.none() | st.integers(0, len(content)))]
    can_be_packed = name not in ("article-tree", "html-tree", "parquet")
    packed = data.draw(st.booleans()) and can_be_packed
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        names = {file: f"{file}.gz" if packed and file != "split_80_20.json" else file for file in files}
        write_files(
            {names[file]: gzip.compress(whole) if names[file] != file else whole for file, whole in files.items()},
            source,
        )
        check_source(name, Path(folder))


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"article-tree", "html-tree", "parquet"}))
@given(cut=st.integers(1, 30))
def test_a_truncated_gzip_file_is_refused(name: str, cut: int) -> None:
    for hurt in sorted(set(SOURCES[name]) - {"split_80_20.json"}):
        with tempfile.TemporaryDirectory() as folder:
            packed = gzip.compress(SOURCES[name][hurt])
            others = {file: whole for file, whole in SOURCES[name].items() if file != hurt}
            write_files(others | {f"{hurt}.gz": packed[:-cut]}, Path(folder))
            with pytest.raises(InputError, match=r"damaged|empty|cut off"):
                list(open_source(folder, name).rows())


REPEATED = [b" ", b"\n", b"\t", b'"', b",", b"[", b"{", b'{"a":', b"<b>", b"<div>", b"</p>", b"<!--", b"#", b"- "]
REPEATED += [b"![", b"[a](", b"|", b"> ", b"[^a]: ", b"---\n", b"*a **b ", b"<a '", b"title: [", b";\n"]
REPEATED += [b'\t"a\n', b'""\n', b"0", b"\\", b"\xff", b"```\n", b"&#97;", b"<a href=b>", b"\r", b"\xe2\x80\xa8"]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.timeout(60)
def test_repeated_tokens_are_read_in_linear_time(name: str) -> None:
    """Repeat each token 2,000 times, in the middle and alone: a reader that backtracks would take hours."""
    for hurt, content in SOURCES[name].items():
        middle = len(content) // 2
        for what in REPEATED:
            many = what * 2_000
            for hurt_content in (content[:middle] + many + content[middle:], b"# a" + many + b"x"):
                with tempfile.TemporaryDirectory() as folder:
                    write_files(SOURCES[name] | {hurt: hurt_content}, Path(folder))
                    try:
                        format = "tables" if name == "parquet" else name
                        for _ in open_source(folder, format).rows():
                            pass
                    except InputError as error:
                        assert str(error)
