"""What a language model on this machine answers about passages, for `corpus.query_generation.generate`.

A prompt without {number} asks for one text, and is answered several times. Shape suffix: P passages of a part.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from stillhouse.core.context import Context
from stillhouse.corpus.chat_api import BrokenAnswer, Reply
from stillhouse.corpus.query_generation import Answered, Answers, KeptAnswers, Passage
from stillhouse.corpus.questions import as_line, scored_questions
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.text_generator import LONGEST, Sampling, TextGenerator

PASSAGES_AT_ONCE = 4096
SEVERAL = "{number}"


def write_about(
    passages: Iterator[Passage],
    generator: TextGenerator,
    digest: str,
    wanted: Sampling,
    config: InferenceConfig,
    context: Context,
) -> Answers:
    """The answers about all passages, `wanted.number` questions each; `digest` is that of the model's files.

    `wanted.max_tokens` 0 stands for as many as an answer may need.
    Every answer is kept (`KeptAnswers`). A run after a kill writes what is missing, in the same batches.
    """
    several, number = SEVERAL in generator.prompt, wanted.number
    most = wanted.max_tokens or 512 if several else min(LONGEST, wanted.max_tokens or LONGEST)
    sampling = replace(wanted, number=1 if several else number, max_tokens=most)
    kept = KeptAnswers()

    def answered(passage: Passage, reply: Reply, known: bool) -> Answered:
        try:
            return passage, scored_questions(reply, passage.text, number), known
        except BrokenAnswer as error:
            return passage, error, known

    with generator.writing(config, context) as device:
        while part := list(islice(passages, PASSAGES_AT_ONCE)):
            prompts = generator.prompts([(passage.title, passage.text) for passage in part], number)
            requests: list[dict[str, Any]] = [
                {"model": digest, "prompt": prompt, **vars(sampling)} for prompt in prompts
            ]
            known = [kept.find(request) for request in requests]
            missing_P = np.array([reply is None for reply in known])
            yield from (answered(passage, reply, True) for passage, reply in zip(part, known) if reply is not None)
            for rows, texts, drawn in generator.write(prompts, sampling, config.batch_tokens, device, missing_P):
                for place, row in enumerate(rows.tolist()):
                    if not missing_P[row]:
                        continue
                    whole = zip(texts[place], drawn.log_likelihood_BS[place].tolist(), drawn.ended_BS[place])
                    if several:
                        reply = Reply(texts[place][0], not drawn.ended_BS[place][0])
                    else:
                        lines = [
                            (as_line(text, marked=not generator.asks), value) for text, value, ended in whole if ended
                        ]
                        values = tuple(value for _, value in lines)
                        reply = Reply("\n".join(line for line, _ in lines), False, values)
                    kept.keep(requests[row], reply)
                    yield answered(part[row], reply, False)
