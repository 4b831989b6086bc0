"""Step `average`: averages a retriever before and after a training, in the proportion that dev queries choose."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step
from stillhouse.search.settings import EncodingConfig
from stillhouse.training.settings import RANKINGS, DevRankingConfig


@dataclass(frozen=True, kw_only=True)
class Config(DevRankingConfig, EncodingConfig):
    """Which averages to try, and how dev queries choose among them."""

    alphas: tuple[float, ...] = setting(
        (0.25, 0.5, 0.75, 1.0),
        "shares of the trained retriever to try: 1 = it alone, 0 = the one before the training",
        minimum=0,
        maximum=1,
    )
    metric_for_best_model: str = setting(
        "rr10",
        "the dev metric to choose by: rr10 = RR@10, ndcg10 = nDCG@10; ties go to the larger share",
        choices=tuple(RANKINGS),
    )
    seed: int = setting(42, "seed of the sample of dev queries", minimum=0)

    def __post_init__(self) -> None:
        if not self.alphas or len(set(self.alphas)) < len(self.alphas):
            raise InputError(f"alphas must name at least one share, each once: {list(self.alphas)}")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.curves import write_csv
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.tokenizer_files import copy_tokenizers
    from stillhouse.training.averaging import averaged, rank_averages, refuse_unlike
    from stillhouse.training.dev_ranking import DevCandidates, sample, signal
    from stillhouse.training.groups import GroupSampler
    from stillhouse.training.intervals import interval_of
    from stillhouse.training.negatives import Negatives

    start, encoder = BiEncoder.load(inputs["start"]), BiEncoder.load(inputs["trained"])
    refuse_unlike(start, encoder, (inputs["start"], inputs["trained"]))
    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    sampler = GroupSampler(corpus, negatives, "dev", 0, config.eval_depth, config.seed)
    dev = sample(len(sampler), config.eval_queries or len(sampler), config.seed)
    candidates = DevCandidates.of(sampler, dev, config.eval_depth)
    # A model's own tensors change with every average that is loaded into it.
    trained = {name: value.clone() for name, value in encoder.state_dict().items()}
    ends = start.state_dict(), trained
    ranked = rank_averages(encoder, *ends, config.alphas, candidates, corpus, context, config)
    figures = {alpha: dict(of.mean()) for alpha, of in ranked.items()}
    main = RANKINGS[config.metric_for_best_model]
    best = max(figures, key=lambda alpha: (figures[alpha][main], alpha))
    encoder.load_state_dict(averaged(*ends, best))
    encoder.save(outputs["retriever"])
    copy_tokenizers(inputs["trained"], outputs["retriever"])
    rows = ([alpha, *(f"{value:.6f}" for value in of.values())] for alpha, of in figures.items())
    write_csv(outputs["choices"] / "choices.csv", ["alpha", *RANKINGS.values()], rows)
    shown = ", ".join(f"{alpha:g}: {of[main]:.3f}" for alpha, of in figures.items())
    return Report(
        f"alpha {best:g} chosen by {main} of {len(candidates)} dev queries ({shown})",
        metrics={"alpha": best, **{signal(name): figures[best][of] for name, of in RANKINGS.items()}},
        facts={
            "alpha": best,
            "intervals": {signal(name): interval_of(ranked[best][of]) for name, of in RANKINGS.items()},
        },
    )


STEP = Step(
    "average",
    "averages the weights of two retrievers in the proportion that ranks dev queries best",
    Config,
    inputs=(
        CORPUS,
        Port("start", "the encoder that training started from", kind="model"),
        Port("trained", "the trained retriever", kind="model"),
        Port("negatives", "hard negatives; the best are the candidates for dev queries"),
    ),
    outputs=(
        Port("retriever", "the averaged retriever", kind="model"),
        Port("choices", "how well each share ranks dev queries"),
    ),
    run=run,
    version=4,
)
