"""A retriever for LangChain that asks a search service (`stillhouse serve`).

    pip install langchain-core requests
    python examples/langchain_retriever.py http://localhost:8000 "why do ships carry clocks"

It is a `Runnable` like every retriever: `retriever | prompt | model` is a chain that answers from the passages.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import requests
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever


class StillhouseRetriever(BaseRetriever):
    """Passages of the service at `url`, best first. A document's metadata names the release that found it.

    `bm25` is BM25's share of the ranking; None = the share that the release ranks best with. Raises `ValueError` with
    the service's message if it refuses.
    """

    url: str
    top: int = 5
    bm25: float | None = None
    token: str = ""
    timeout: float = 30.0

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        asked: dict[str, Any] = {"query": query, "top": self.top}
        if self.bm25 is not None:
            asked["bm25"] = self.bm25
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = requests.post(f"{self.url.rstrip('/')}/search", json=asked, headers=headers, timeout=self.timeout)
        if answer.status_code != 200:
            raise ValueError(f"{answer.status_code}: {answer.json()['error']['message']}")
        found = answer.json()
        return [
            Document(
                id=hit["passage_id"],
                page_content=hit["text"],
                metadata={"title": hit["title"], "score": hit["score"], "release": found["release"]},
            )
            for hit in found["answers"][0]["hits"]
        ]


if __name__ == "__main__":
    retriever = StillhouseRetriever(url=sys.argv[1], token=os.environ.get("STILLHOUSE_SERVE_TOKEN", ""))
    for document in retriever.invoke(sys.argv[2]):
        print(f"{document.id}  {document.metadata['score']:.3f}  {document.metadata['title']}")
