"""The cost of an answer does not grow with other passages, the client's pace, or threads."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from serving_releases import Running

from stillhouse.corpus.store import Corpus
from stillhouse.models.query_encoder import FEW_TOKENS, PlainBert
from stillhouse.serving.app import listen
from stillhouse.serving.passages import Passages


def test_passages_are_shown_without_a_copy_of_the_others(tmp_path: Path) -> None:
    """The file has several parts, like that of every large corpus, and joining them would take 20 MB per answer."""
    rows = range(200_000)
    texts = [f"{row} {'x' * 100}" for row in rows]
    columns = {name: [""] * len(rows) for name in ("article_id", "title", "section")}
    columns["passage_id"] = [f"p{row}" for row in rows]
    pq.write_table(pa.table(columns | {"text": texts}), tmp_path / "passages.parquet")
    passages = Passages(Corpus(tmp_path))
    wanted = [199_999, 0, 70_000, 131_072, 65_535, 65_536, 0]
    before = pa.default_memory_pool().max_memory()
    hold = pa.allocate_buffer(before - pa.total_allocated_bytes())  # so that the peak shows later allocations only
    found = passages.at(wanted, "passage_id", "text")
    assert found == [{"passage_id": f"p{row}", "text": texts[row]} for row in wanted]
    assert pa.default_memory_pool().max_memory() - before < 1 << 20
    del hold


def test_reading_texts_does_not_map_their_neighbours(tmp_path: Path) -> None:
    """If the file were mapped, each text read would bring 64 KB into the process: 20 MB in all."""
    rows = range(100_000)
    texts = [f"{row} é{'x' * (row % 400)}" for row in rows]
    columns = {name: [f"{name}{row}" for row in rows] for name in ("passage_id", "article_id", "title", "section")}
    pq.write_table(pa.table(columns | {"text": texts}), tmp_path / "passages.parquet")
    passages = Passages(Corpus(tmp_path))
    wanted = list(rows)[::300]
    passages.at(wanted, "passage_id", "article_id", "title")
    before = mapped_bytes()
    found = passages.at(wanted, "passage_id", "text")
    assert found == [{"passage_id": f"passage_id{row}", "text": texts[row]} for row in wanted]
    assert mapped_bytes() - before < 1 << 20


def mapped_bytes() -> int:
    """The resident bytes of this process that are in mapped files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssFile"))


def test_the_body_of_an_answer_does_not_wait_for_the_client() -> None:
    """With Nagle's algorithm the body would wait for the headers' acknowledgement, which clients delay by 40 ms."""
    with closing(listen("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_few_tokens_are_computed_on_one_thread(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = served.service.releases.current._queries
    assert isinstance(encoder, PlainBert)
    used: list[int] = []
    states = encoder._states

    def watched(tokens: list[int], groups: Sequence[tuple[int, int, int]]) -> torch.Tensor:
        used.append(torch.get_num_threads())
        return states(tokens, groups)

    monkeypatch.setattr(encoder, "_states", watched)
    short, long = encoder.tokenize(["red bird"]), encoder.tokenize(["the red bird sings"] * FEW_TOKENS)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        encoder.vectors(short)
        encoder.vectors(long)
        assert used == [1, 2] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
