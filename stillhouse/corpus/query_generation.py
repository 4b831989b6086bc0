"""Questions that a model writes about passages, for a corpus without labels.

The output does not depend on the order in which answers arrive: questions are kept with their passages, in corpus
order. A question that comes from two passages is dropped, since it has two right answers and one would be judged wrong.
Of passages with equal title and text, only the first gets questions. Passages that are not prose (`not_prose.parquet`)
are skipped. Answers are kept in the work area (`KeptAnswers`).

Filters then drop questions. Every filter judges a question by itself, except the last, which compares the questions
that the others keep. A question that several would drop gets the first of their reasons.

Shape suffix: Q questions.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.artifacts import digest_json, write_whole
from stillhouse.core.context import answers_root
from stillhouse.core.errors import InputError
from stillhouse.corpus.chat_api import BrokenAnswer, ChatServer, Reply
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.prompts import Example, chat, filled
from stillhouse.corpus.questions import scored_questions
from stillhouse.corpus.schemas import GENERATED
from stillhouse.corpus.store import Corpus, write_rows
from stillhouse.corpus.titles import SEPARATOR
from stillhouse.corpus.words import WORD

IN_A_ROW = 20
"""After this many consecutive passages without a usable answer the work ends: with a server that is down, retries would
take hours."""
LOST = "not found again"
UNCLEAR = "unclear alone"
ALIKE = "like another"
_POINTING = re.compile(
    r"\b(?:this|these)\b"
    r"|\bthe (?:above|following|given|passage|text|paragraph|excerpt)\b"
    r"|^(?:\W*[\w-]+ ){0,4}?(?:is|are|was|were|did|do|does|has|have|had|can|could|will|would|should) (?:he|she|they)\b",
    re.IGNORECASE,
)
"""English words that point at a passage, or at somebody whom only the passage names."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The settings of a request. `max_tokens` None leaves the length of an answer to the server."""

    model: str
    prompt: str
    number: int
    temperature: float
    max_tokens: int | None
    seed: int
    examples: Sequence[Example] = ()

    def request(self, title: str, text: str) -> dict[str, Any]:
        """The body of the request about a passage; braces in the passage stay unchanged."""
        # A mark, which the model will imitate: a claim or keywords without one are not taken for an answer.
        said = [(filled(self.prompt, shot.title, shot.text), f"- {shot.query}") for shot in self.examples]
        return {
            "model": self.model,
            "messages": chat(said, filled(self.prompt, title, text, self.number)),
            "temperature": self.temperature,
            "seed": self.seed,
            "stream": False,
            **({"max_tokens": self.max_tokens} if self.max_tokens else {}),
        }


class Passage(NamedTuple):
    """A passage to ask about; `row` is its row in the corpus."""

    row: int
    id: str
    title: str
    text: str


Answered = tuple[Passage, Mapping[str, float | None] | BrokenAnswer, bool]
"""A passage, its questions with their log-likelihoods or the reason why there are none, and whether an earlier run had
its answer."""
Answers = Generator[Answered, None, None]


class MadeQuery(NamedTuple):
    """A generated question; `row` and `passage_id` are those of the passage that answers it.

    `log_likelihood` is the mean of its tokens given the passage, by the model that wrote it; None from a server.
    """

    id: str
    text: str
    row: int
    passage_id: str
    log_likelihood: float | None = None


@dataclass(frozen=True)
class Generated:
    """The result: `passages` were asked about, of which `kept` were answered by an earlier run and `broken` left out.

    `repeated` counts the questions that were dropped because several passages have them.
    """

    queries: list[MadeQuery]
    passages: int
    kept: int
    broken: int
    repeated: int


class KeptAnswers:
    """The answers of models in the work area, so that no answer is paid for twice.

    Each has its own file, named by the digest of the request: model, prompt as sent, temperature, seed and token limit.
    The address is not part of it, since a model is the same behind another host or port, and a different model should
    have a different name; the name of a model on this machine is the digest of its files. A file is written whole or
    not at all.
    """

    def __init__(self) -> None:
        self._folder = answers_root()

    def find(self, request: Mapping[str, Any]) -> Reply | None:
        """The answer to a request; None if there is none or its file is damaged."""
        try:
            content = json.loads(self._path(request).read_text(encoding="utf-8"))
            reply = Reply(content["text"], content["cut"], tuple(content.get("log_likelihoods", ())))
        except (OSError, ValueError, TypeError, LookupError):
            return None
        return reply if isinstance(reply.text, str) and isinstance(reply.cut, bool) else None

    def keep(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Keeps an answer, so that `find` returns it in any process."""
        # In ASCII, since a model's answer may hold a lone surrogate, which UTF-8 cannot encode.
        content = {"text": reply.text, "cut": reply.cut}
        content |= {"log_likelihoods": reply.log_likelihoods} if reply.log_likelihoods else {}
        write_whole(self._path(request), json.dumps(content) + "\n")

    def _path(self, request: Mapping[str, Any]) -> Path:
        digest = digest_json(dict(request))
        return self._folder / digest[:2] / f"{digest[2:]}.json"


def chosen_rows(corpus: Corpus, most: int | None, seed: int) -> NDArray[np.int64]:
    """The rows of the passages to ask about, ascending: all prose passages, or a seeded sample of `most` of them."""
    rows = np.arange(corpus.passage_count)
    if corpus.not_prose:
        rows = np.setdiff1d(rows, corpus.rows_of(corpus.not_prose))
    if most and len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:most])
    return rows


def generate(answers: Answers, watch: Callable[[int], None] = lambda count: None) -> Generated:
    """The questions of all answers. Calls `watch(1)` after every passage.

    Raises `InputError` if a server refuses all requests, if `IN_A_ROW` passages in a row get no usable answer, or if
    more than half of all passages get none.
    """
    asked = kept = in_a_row = 0
    made: dict[Passage, Mapping[str, float | None]] = {}
    broken: list[str] = []
    with closing(answers):
        for passage, answer, known in answers:
            asked, kept = asked + 1, kept + known
            watch(1)
            if isinstance(answer, BrokenAnswer):
                broken.append(str(answer))
                in_a_row += 1
            else:
                made[passage._replace(title="", text="")], in_a_row = answer, 0
            if in_a_row == IN_A_ROW:
                raise InputError(
                    f"{in_a_row} passages in a row got no usable answer, the last one because: {broken[-1]}; fix the "
                    "server, the model or the settings and run the same command again: finished answers are kept"
                )
    if 2 * len(broken) > asked:
        reason, count = Counter(broken).most_common(1)[0]
        raise InputError(
            f"{len(broken):,} of {asked:,} passages got no usable answer ({count:,} × {reason}); try another model or "
            "prompt, or raise max_tokens"
        )
    made = dict(sorted(made.items()))
    texts = Counter(normalise(text) for questions in made.values() for text in questions)
    queries = [
        MadeQuery(f"{GENERATED}:{passage.id}:{number}", text, passage.row, passage.id, log_likelihood)
        for passage, questions in made.items()
        for number, (text, log_likelihood) in enumerate(questions.items())
        if texts[normalise(text)] == 1
    ]
    return Generated(queries, asked, kept, len(broken), texts.total() - len(queries))


def write_queries(folder: Path, queries: list[MadeQuery]) -> None:
    """Writes questions as the table `queries` of a corpus: each is in train, and `taken_from` names its passage."""
    rows = [(query.id, query.text, "train", GENERATED, query.passage_id) for query in queries]
    write_rows(folder, "queries", rows)


def passages_of(corpus: Corpus, rows: NDArray[np.int64]) -> Iterator[Passage]:
    """The passages `rows`; of passages with the same title and text, only the first."""
    seen = DigestNumbers()
    first = 0
    for block in corpus.passage_blocks("passage_id", "title", "text", among=rows):
        found = [Passage(*passage) for passage in zip(rows[first:].tolist(), *(block[name] for name in block))]
        first += len(found)
        before = len(seen)
        numbers = seen.add(digests_of([f"{passage.title}{SEPARATOR}{passage.text}" for passage in found]))
        for passage, number in zip(found, numbers.tolist()):
            if number >= before:
                before = number + 1
                yield passage


def ask_all(passages: Iterator[Passage], asking: Asking, server: ChatServer, at_once: int) -> Answers:
    """A server's answers about every passage, in the order of their arrival, with `at_once` concurrent requests."""
    answers = KeptAnswers()

    def ask(passage: Passage) -> Answered:
        request = asking.request(passage.title, passage.text)

        def read(reply: Reply) -> Mapping[str, float | None]:
            return scored_questions(reply, passage.text, asking.number)

        def keep(reply: Reply) -> Mapping[str, float | None]:
            questions = read(reply)
            answers.keep(request, reply)
            return questions

        known = answers.find(request)
        if known is not None:
            with suppress(BrokenAnswer):  # kept by a version with other rules for questions
                return passage, read(known), True
        try:
            return passage, server.ask(request, keep), False
        except BrokenAnswer as error:
            return passage, error, False

    running: set[Future[Answered]] = set()
    # The server closes before the pool, which waits for its threads: so threads that pause end at once.
    with ThreadPoolExecutor(at_once) as pool, server:
        for passage in passages:
            running.add(pool.submit(ask, passage))
            if len(running) >= 2 * at_once:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


UNLIKELY = "unlikely"
REASONS = {
    LOST: "no search found its passage again",
    UNCLEAR: "it makes sense only beside its passage",
    UNLIKELY: "the model that made it found it among the least likely",
    ALIKE: "another question has the same words",
}
"""The reasons in the order in which they are tried, and what they mean."""


def reasons_to_drop(
    queries: Sequence[MadeQuery],
    terms: Sequence[Sequence[str]],
    found_Q: NDArray[np.bool_],
    unlikely_share: float,
    english: bool = True,
) -> list[str]:
    """Why each question is dropped, one of `REASONS`; "" if it is kept. The order of the questions does not matter.

    `terms` are the questions' terms for a search by words. `found_Q` says whether a search found the passage again. The
    words that point at a passage are English, so another language has no `UNCLEAR` questions.
    """
    least = unlikely(queries, unlikely_share)
    reasons = []
    for query, found in zip(queries, found_Q.tolist(), strict=True):
        holds = {LOST: not found, UNCLEAR: english and points(query.text), UNLIKELY: query.id in least}
        reasons.append(next((reason for reason, held in holds.items() if held), ""))
    kept = [place for place, reason in enumerate(reasons) if not reason]
    for place in near_duplicates([queries[place] for place in kept], [terms[place] for place in kept]):
        reasons[kept[place]] = ALIKE
    return reasons


def points(text: str) -> bool:
    """Whether an English question points at something that only its passage names."""
    return _POINTING.search(text) is not None


def unlikely(queries: Sequence[MadeQuery], share: float) -> set[str]:
    """The ids of this share of the questions, the least likely of those whose likelihood is known."""
    known = sorted((query.log_likelihood, query.id) for query in queries if query.log_likelihood is not None)
    return {id for _, id in known[: int(share * len(known))]}


def near_duplicates(queries: Sequence[MadeQuery], terms: Sequence[Sequence[str]]) -> list[int]:
    """The places of questions that have the terms and single characters of another question, in any order.

    Of several about one passage, the first by id stays. If they are about different passages none does, since each
    has several right answers, or says too little.
    """
    groups = defaultdict(list)
    for place, (query, words) in enumerate(zip(queries, terms)):
        single = [word for word in WORD.findall(normalise(query.text)) if len(word) == 1]  # type 1 is not type 2
        groups[frozenset([*words, *single])].append(place)
    places = []
    for group in groups.values():
        group.sort(key=lambda place: queries[place].id)
        places += group[len({queries[place].row for place in group}) == 1 :]
    return places


def write_dropped(folder: Path, queries: Sequence[MadeQuery], reasons: Sequence[str]) -> None:
    """Writes the dropped questions as the table `dropped`."""
    dropped = [(query.id, query.text, query.passage_id, reason) for query, reason in zip(queries, reasons) if reason]
    write_rows(folder, "dropped", dropped)
