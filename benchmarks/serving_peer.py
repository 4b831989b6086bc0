"""The usual service: sentence-transformers' `encode` and a faiss index behind FastAPI.

python -m benchmarks.serving_peer RELEASE PORT
"""

from __future__ import annotations

import sys
from pathlib import Path

import faiss
import pyarrow.parquet as pq
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

release = Path(sys.argv[1])
model = SentenceTransformer(str(release / "retriever"), device="cpu")
index = faiss.read_index(str(release / "index" / "index.faiss"))
passages = pq.read_table(release / "corpus" / "passages.parquet", columns=["passage_id", "title", "text"])
app = FastAPI()


class Search(BaseModel):
    query: str
    top: int = 10


class Embed(BaseModel):
    inputs: list[str]


@app.get("/ready")
def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/search")
def search(body: Search) -> dict[str, list[dict[str, object]]]:
    vector = model.encode([body.query], normalize_embeddings=True, show_progress_bar=False)
    scores, rows = index.search(vector, body.top)
    found = passages.take(rows[0]).to_pylist()
    return {"hits": [{"score": float(score), **passage} for score, passage in zip(scores[0], found)]}


@app.post("/embed")
def embed(body: Embed) -> list[list[float]]:
    vectors = model.encode(body.inputs, normalize_embeddings=True, show_progress_bar=False)
    embedded: list[list[float]] = vectors.tolist()
    return embedded


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
