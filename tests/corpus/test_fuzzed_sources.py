"""A source with random damage is read, or refused as bad input; it never crashes, and what is taken is sound."""

from __future__ import annotations

import gzip
import importlib.util
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources_to_damage import SOURCES

from stillhouse.corpus.checks import _integrity, _PassageCounts
from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError

TOKENS = [b"", b"\n", b"\t", b'"', b"'", b",", b"[", b"]", b"{", b"}", b"\\", b"\xff", b"\x00", b"<", b">", b"&#55555;"]
damages = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # where
        st.integers(0, 12),  # how many bytes are cut out there
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),  # what is put there instead
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_is_rejected_or_refused(name: str, data: st.DataObject) -> None:
    if name == "html-tree" and importlib.util.find_spec("lxml") is None:
        pytest.skip("lxml is not installed")
    files = SOURCES[name]
    hurt = data.draw(st.sampled_from(sorted(files)))
    content = files[hurt]
    for place, cut, insert in data.draw(damages):
        at = int(place * len(content))
        content = content[:at] + insert + content[at + cut :]
    packed = data.draw(st.booleans()) and name not in ("article-tree", "html-tree", "parquet")
    broken = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as place_of:
        folder, output = Path(place_of) / "source", Path(place_of) / "corpus"
        output.mkdir()
        for file, whole in (files | {hurt: content}).items():
            path = folder / (f"{file}.gz" if packed and file != "split_80_20.json" else file)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".gz":
                whole = gzip.compress(whole)
                whole = whole[:-9] if broken and file == hurt else whole
            path.write_bytes(whole)
        try:
            format = "tables" if name == "parquet" else name
            ingest_source(open_source(str(folder), format), Choices(max_queries={}, seed=0), output)
        except InputError as error:
            assert str(error)
            return
        corpus = Corpus.open(output)
        assert [check.name for check in _integrity(corpus, _PassageCounts(corpus, 0)) if not check.passed] == []
        assert set(corpus.answers["query_id"]) <= set(corpus.queries["query_id"])
