"""Retrievers that compete on judged dev queries, alone, with BM25 and with late interaction, for `select-best`.

Shape suffixes: Q queries, U candidates of all systems, F scores of a candidate.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import Rows
from stillhouse.evaluation.relevance import JudgedQueries
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.token_states import TokenReader, state_width
from stillhouse.search.hybrid import Fusion, HybridIndex, MeasuredRankings, can_fit, fused_scores, measure_rankings
from stillhouse.search.late_interaction import LateInteraction, write_tokens
from stillhouse.search.reading import lexical_factor
from stillhouse.search.searcher import query_vectors, searches_on_gpu
from stillhouse.search.winner import Contender, choose_winner, common_candidates, log_likelihoods


@dataclass
class Contest:
    """Retrievers, each alone and with BM25, and the winner with late interaction too, on judged dev queries.

    `contenders` are those measured so far, by name. `fusion` and `depth` are settings of `select-best`; `metric` and
    `standard_errors` are those of `choose_winner`.
    """

    judged: JudgedQueries
    retrievers: Mapping[str, Path]
    hybrids: Mapping[str, HybridIndex]
    corpus: Corpus
    fusion: str
    depth: int
    metric: str
    standard_errors: float
    context: Context
    config: InferenceConfig
    factors: dict[str, float] = field(default_factory=dict)
    """How much more BM25 counts with each retriever where no weights are fitted."""

    def winner(self, tokens: Path, before: Contender | None = None) -> Contender:
        """The winner. If it ranks with late interaction, the folder `tokens` has its tokens.

        If `before` is given, the winner on other queries, a system must beat it on these too.
        """
        order = list(self.contenders.values())
        if before is not None:
            if before.fusion.late:
                self._add_late(before.retriever, tokens)
            own = [of for of in self.contenders.values() if of.retriever == before.retriever]
            order = [self.contenders[before.name], *own, *order]
        winner = choose_winner(order, self.metric, self.standard_errors)
        if before is not None and before.retriever != winner.retriever:
            shutil.rmtree(tokens, ignore_errors=True)
        encoder = self._encoder(winner.retriever)
        readable = state_width(encoder) if self.judged.labelled else compares_unfitted(encoder)
        if winner.fusion.late or self.fusion != "auto" or not readable:
            return winner
        late = self._add_late(winner.retriever, tokens)
        if late is None:
            return winner
        # Neither made nor a few labelled questions show what late interaction adds to a fusion with BM25
        # (benchmarks/no_labels.md).
        with_bm25 = winner.fusion.method != "dense"
        joins = not self.judged.labelled or (with_bm25 and compares_unfitted(encoder) and not can_fit(self.judged))
        return choose_winner([late] if joins else [winner, late], self.metric, self.standard_errors)

    @cached_property
    def contenders(self) -> dict[str, Contender]:
        alone, found = Fusion(depth=self.depth), dict[str, Contender]()
        for name, ranked in self._ranked.items():
            dense_QU = self.hybrids[name].products(self._vectors[name], self._rows_QU)
            systems = {"dense": (alone, dense_QU)}
            if self.fusion != "never":
                both_QUF = np.stack([self._bm25_QU, dense_QU], axis=2)
                systems["hybrid"] = ranked.fusion, fused_scores(ranked.fusion, self._rows_QU, both_QUF)
            for system, (fusion, scores_QU) in systems.items():
                contender = Contender(name, fusion, ranked.reciprocal_ranks[system], self._likelihoods(scores_QU))
                found[contender.name] = contender
        return found

    def factor(self, name: str) -> float:
        if self.fusion == "never" or can_fit(self.judged):
            return 1.0
        if name not in self.factors:
            hybrid = self.hybrids[name]
            read = self._encoder(name), self.retrievers[name], hybrid.index, hybrid.bm25
            self.factors[name] = lexical_factor(*read, self.corpus, self.context, self.config)
        return self.factors[name]

    def _add_late(self, name: str, tokens: Path) -> Contender | None:
        """A retriever with BM25 and late interaction; None if fitted weights leave late interaction nothing."""
        encoder = self._encoder(name)
        if not tokens.is_dir():
            write_tokens(tokens, encoder, self.corpus, self.context, self.config)
        late = LateInteraction(tokens, TokenReader(encoder, self.context, self.config))
        hybrid = HybridIndex(self.hybrids[name].bm25, self.hybrids[name].index, late)
        ranked = self._measured(hybrid, name)
        if not ranked.fusion.late:
            return None
        three = [self._bm25_QU, hybrid.products(self._vectors[name], self._rows_QU)]
        three.append(late.scores_of(self.judged.texts, self._rows_QU))
        likely_Q = self._likelihoods(fused_scores(ranked.fusion, self._rows_QU, np.stack(three, axis=2)))
        found = Contender(name, ranked.fusion, ranked.reciprocal_ranks["hybrid"], likely_Q)
        self.contenders[found.name] = found
        return found

    def _encoder(self, name: str) -> BiEncoder:
        return BiEncoder.load(self.retrievers[name])

    @cached_property
    def _vectors(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: query_vectors(
                self._encoder(name), self.hybrids[name].index, self.judged.texts, self.context, self.config
            )
            for name in self.retrievers
        }

    @cached_property
    def _ranked(self) -> dict[str, MeasuredRankings]:
        return {name: self._measured(self.hybrids[name], name) for name in self.retrievers}

    def _measured(self, hybrid: HybridIndex, name: str) -> MeasuredRankings:
        gpu, factor = searches_on_gpu(hybrid.index, self.depth, self.context), self.factor(name)
        return measure_rankings(hybrid, self.judged, self._vectors[name], self.depth, gpu=gpu, factor=factor)

    @cached_property
    def _rows_QU(self) -> Rows:
        return common_candidates([ranked.rows_QK for ranked in self._ranked.values()], self.judged.answers_QP)

    @cached_property
    def _bm25_QU(self) -> NDArray[np.float32]:
        return next(iter(self.hybrids.values())).bm25.scores_of(self.judged.texts, self._rows_QU)

    def _likelihoods(self, scores_QU: NDArray[np.float32]) -> NDArray[np.float64]:
        best_QU = self.judged.judged_best(self._rows_QU, scores_QU)
        return log_likelihoods(scores_QU, best_QU, self.judged.right(self._rows_QU))


def compares_unfitted(encoder: BiEncoder) -> bool:
    """Whether late interaction joins with fixed weights, which were found on models that pool by the mean."""
    return encoder.settings.pooling == "mean" and state_width(encoder) > 0
