"""A retriever for LlamaIndex that asks a search service (`stillhouse serve`).

    pip install llama-index-core requests
    python examples/llama_index_retriever.py http://localhost:8000 "why do ships carry clocks"

Give it to a query engine: `RetrieverQueryEngine.from_args(StillhouseRetriever(url), llm=…)`.
"""

from __future__ import annotations

import os
import sys

import requests
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class StillhouseRetriever(BaseRetriever):
    """Passages of the service at `url`, best first. A node's metadata names the release that found it.

    Raises `ValueError` with the service's message if it refuses.
    """

    def __init__(self, url: str, top: int = 5, token: str = "", timeout: float = 30.0) -> None:
        super().__init__()
        self.url, self.top, self.token, self.timeout = url.rstrip("/"), top, token, timeout

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        asked = {"query": query_bundle.query_str, "top": self.top}
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = requests.post(f"{self.url}/search", json=asked, headers=headers, timeout=self.timeout)
        if answer.status_code != 200:
            raise ValueError(f"{answer.status_code}: {answer.json()['error']['message']}")
        found = answer.json()
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit["passage_id"],
                    text=hit["text"],
                    metadata={"title": hit["title"], "release": found["release"]},
                ),
                score=hit["score"],
            )
            for hit in found["answers"][0]["hits"]
        ]


if __name__ == "__main__":
    retriever = StillhouseRetriever(sys.argv[1], token=os.environ.get("STILLHOUSE_SERVE_TOKEN", ""))
    for found in retriever.retrieve(sys.argv[2]):
        print(f"{found.node.node_id}  {found.score:.3f}  {found.node.metadata['title']}")
