# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def generate_queries(
    corpus: Input[Dataset],
    queries: Output[Dataset],
    metrics: Output[Metrics],
    retriever: Input[Model] = None,
    index: Input[Dataset] = None,
    bm25: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    base_url: str = "http://localhost:11434/v1",
    model: str = "",
    prompt: Optional[str] = None,
    queries_per_passage: int = 3,
    max_passages: Optional[int] = None,
    temperature: float = 0.7,
    max_tokens: str = "512",
    max_concurrency: int = 4,
    timeout_s: float = 120.0,
    tries: int = 5,
    seed: int = 42,
    round_trip_depth: int = 10,
):
    """Generates questions that the passages answer, using a chat model.

    Args:
        corpus: the corpus folder.
        queries: the questions, for `ingest`.
        metrics: the step's figures.
        retriever: a bi-encoder that should find each question's passage.
        index: its index of the corpus.
        bm25: the BM25 index from `bm25`, which may find the passage instead.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        base_url: a server with OpenAI's chat API: requests go to BASE_URL/chat/completions; if it needs a key, set
            $STILLHOUSE_CHAT_KEY.
        model: the model's name on that server.
        prompt: the prompt for a passage; {title}, {text} and {number} (of questions) are filled in; null = the
            built-in prompt, for questions to a search engine.
        queries_per_passage: at most this many questions per passage.
        max_passages: ask about at most this many passages, a seeded sample; null = all.
        temperature: sampling temperature; 0 = always the most likely token.
        max_tokens: maximum tokens of an answer; null = not sent, for models without this setting.
        max_concurrency: concurrent requests.
        timeout_s: seconds to wait for the answer to a request.
        tries: at most this many requests per passage; a passage without a usable answer is left out.
        seed: seed of the sample and, if the server takes one, of the model.
        round_trip_depth: with bm25, or a retriever and its index: keep a question if its passage ranks among the
            first this many.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("generate-queries", locals())
