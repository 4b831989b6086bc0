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
        precision: auto = bf16 where the processor or GPU is faster in it, else fp32.
        batch_tokens: padded tokens computed at once.
        base_url: a server with OpenAI's chat API: requests go to BASE_URL/chat/completions; its key, where it wants
            one, comes from the environment, $STILLHOUSE_CHAT_KEY.
        model: the model's name on that server.
        prompt: what is asked about a passage; {title}, {text} and {number}, of questions, are filled in; null = the
            built-in prompt, for questions that somebody may type into a search engine.
        queries_per_passage: at most this many questions of a passage.
        max_passages: ask about at most this many passages, a seeded sample; null = all.
        temperature: how freely the model chooses words; 0 = always the likeliest.
        max_tokens: tokens that an answer may have; null = unsaid, for models that know no such setting.
        max_concurrency: requests side by side.
        timeout_s: seconds after which a request is given up.
        tries: requests for a passage until there is a usable answer; without one the passage is left out.
        seed: seed of the sample and, where the server takes one, of the model.
        round_trip_depth: with bm25, or a retriever and its index: keep a question if its passage is among this many
            of the first.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("generate-queries", locals())
