"""Step `pretrain`: trains an encoder on unlabelled passages with one of the objectives."""

from __future__ import annotations

from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CURVES, TOKENS, Paths, Port, Report, Step
from stillhouse.pretraining.settings import NONE
from stillhouse.pretraining.settings import PretrainingConfig as Config


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import write_json
    from stillhouse.core.curves import best_row, intervals_of, metrics_of, write_csv, write_curves
    from stillhouse.pretraining.inputs import pass_on
    from stillhouse.pretraining.run import pretrain

    if config.objective == NONE:
        facts = pass_on(inputs["init"], outputs["encoder"])
        write_curves(outputs["curves"], [])
        return Report("no pre-training: the model passes unchanged", facts=facts)
    done = pretrain(config, inputs, context)
    done.save(outputs["encoder"])
    write_curves(outputs["curves"], done.rows, config.metric_for_best_model)
    # The share of a passage's tokens among the top k of its vector (BoW Figure 2).
    shares = ([rank, f"{share:.6f}"] for rank, share in done.coverage.items())
    write_csv(outputs["curves"] / "coverage.csv", ["k", "coverage"], shares)
    write_json(outputs["curves"] / "coverage_examples.json", done.coverage_examples)
    first, best = done.rows[0], best_row(done.rows, config.metric_for_best_model)
    facts = {
        "lm_head": "trained" if done.head_trained else "absent",
        "masked_accuracy": round(done.accuracy.head, 4),
        "unigram_accuracy": round(done.accuracy.unigram, 4),
        "training_passages": done.training_passages,
        "heldout_passages": done.heldout_passages,
        "skipped_passages": done.skipped,
        "steps": done.steps,
        "best_step": best.step,
        "intervals": intervals_of(done.rows, config.metric_for_best_model),
        **done.pair_facts,
    }
    changes = {name: (first.signals[name], value) for name, value in best.signals.items()}
    shown = "".join(f"{name} {before:.3f} -> {after:.3f}, " for name, (before, after) in changes.items())
    summary = (
        f"{config.objective}, {done.steps} steps, held-out loss {first.heldout_loss:.3f} -> {best.heldout_loss:.3f}, "
        f"{shown}masked tokens right {done.accuracy.head:.1%} (unigram {done.accuracy.unigram:.1%})"
    )
    metrics = metrics_of(done.rows, config.metric_for_best_model) | {
        "masked_accuracy": done.accuracy.head,
        "unigram_accuracy": done.accuracy.unigram,
    }
    return Report(summary, metrics=metrics, facts=facts)


STEP = Step(
    "pretrain",
    "pre-trains an encoder on unlabelled passages with one of the objectives",
    Config,
    inputs=(
        TOKENS,
        Port("init", "the model to start from", kind="model"),
        Port("generator", "the masked language model that replaces tokens", kind="model", optional=True),
        Port("importance", "AMI values for importance-aware masking", optional=True),
    ),
    outputs=(Port("encoder", "the pre-trained encoder with its language-model head", kind="model"), CURVES),
    run=run,
    version=4,
    parallel=True,
)
