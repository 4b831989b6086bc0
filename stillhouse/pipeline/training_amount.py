"""How much a run trains: as many questions and steps as fit into the given hours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import in_words
from stillhouse.pipeline.graph import GRAPH, GRAPHS, graph_of
from stillhouse.pipeline.graph_steps import GraphStep
from stillhouse.pipeline.recipe_settings import with_sections
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.pipeline.run_forecast import forecast, makes_pairs, scale_of_look, why_none
from stillhouse.pipeline.step_times import TRAININGS, Scale, steps_of

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

Amount = Mapping[str, Mapping[str, float | None]]
"""Settings by section: `max_steps` and `epochs` of trainings, and the limit of train questions (`Amounts.limited`)."""

PAPERS = next(iter(GRAPHS))
"""The graph of the papers' runs, also of a recipe that names none."""
USUAL_HOURS = 1.0
"""The length, in hours, to which a run is extended without --hours."""
LONGER = 2.0
"""How many times their epochs trainings may take if --hours leaves time for it; dev keeps the best step."""
MORE = (
    "with more --hours it uses more questions: 2,000 instead of 300 added 0.018 to the winner's RR@10 on MedQuAD and "
    "nothing on SQuAD"
)
WRITTEN = "generated"
"""The step in which a language model writes questions, in recipes that have it."""
MOST_MADE = 3.0
"""How many times as many passages --hours may have questions written about; more was not measured."""
MORE_WRITTEN = (
    "--hours raises this to at most three times the recipe's, which added 0.008 to the winner's nDCG@10 on PEPs, "
    "0.002 on MDN and nothing on MedQuAD"
)
FEWEST_STEPS = 10
"""A training with fewer steps is not worth its measurements."""
FEWEST_ASKED = 200
"""Questions about fewer passages are not worth the training of their writer."""
NEAR = 1.05
"""A run that takes longer than requested by up to this factor still fits, because the forecast is not more precise."""
HALVINGS = 10
"""How often the share of training that fits is narrowed down: to a thousandth of what is possible."""


def fit_into(hours: float, recipe: Recipe, look: FirstLook | None, why: str = "") -> Amount:
    """The settings with which a run trains for as much of `hours` as its questions and epochs allow.

    A run that would take longer gets fewer steps, and has questions written about fewer passages; one that would take
    less reads more questions in more steps. Raises `InputError` if the other steps alone take longer, and if no
    forecast can be made. If there is no look at the source, `why` gives the reason.
    """
    expected = forecast(recipe, look)
    if expected is None or look is None:
        why = why_none(configs(recipe, "recipe"), look) or why
        raise InputError(
            "--hours needs a source and a base model that are on this machine, and a run on its CPU"
            f"{f' ({why})' if why else ''}; leave --hours out, and set `max_steps` in params.yaml"
        )
    amounts, budget = Amounts(recipe, look), hours * 3600
    if expected.total <= budget:
        return amounts.largest(1.0, amounts.most * (LONGER if amounts.labelled else 1.0), budget)
    if (least := amounts.seconds(0.0)) > budget * NEAR:
        raise InputError(
            f"the run takes about {in_words(least)} on this machine, even with minimal training; give --hours "
            f"{math.ceil(least / 360) / 10:.1f}, or leave it out and lower fetch_model.passage_length in params.yaml"
        )
    return amounts.largest(0.0, 1.0, budget)


def usual(recipe: Recipe, look: FirstLook | None) -> Amount:
    """The settings with which a run uses more of its questions than the recipe within `USUAL_HOURS`, each as often.

    There are none if the recipe itself takes longer, or if no forecast can be made.
    """
    expected, budget = forecast(recipe, look), USUAL_HOURS * 3600
    if expected is None or look is None or expected.total > budget:
        return {}
    amounts = Amounts(recipe, look)
    return amounts.largest(1.0, amounts.all_questions if amounts.labelled else 1.0, budget)


@dataclass(frozen=True)
class Amounts:
    """How much a recipe can train on a source, as a share of the recipe's own steps.

    A share above 1 also uses more questions.
    """

    recipe: Recipe
    look: FirstLook

    @cached_property
    def settings(self) -> dict[str, Any]:
        return configs(self.recipe, "recipe")

    @cached_property
    def trainings(self) -> list[GraphStep]:
        """Those that may take fewer or more steps. A language-model head that learned too little would stop the run."""
        steps = (step for step in graph_of(self.recipe) if step.kind in TRAININGS)
        return [step for step in steps if getattr(self.settings[step.name], "trainable", "all") == "all"]

    @property
    def grows(self) -> bool:
        """Whether a share above 1 may exist: not of a paper's run, or of a source that was not read to its end."""
        return self.look.whole and self.recipe.get(GRAPH, PAPERS) != PAPERS

    @cached_property
    def labelled(self) -> bool:
        """Whether a share above 1 uses more of the source's questions."""
        return self.grows and not makes_pairs(self.settings["ingest"], self.look)

    @cached_property
    def written(self) -> bool:
        """Whether a share above 1 has a language model on this machine write about more passages.

        Not a server, whose time and price are unknown.
        """
        here = getattr(self.settings.get(WRITTEN), "base_url", "") is None
        return self.grows and not self.labelled and here and self.settings["ingest"].max_train_queries is None

    @property
    def limited(self) -> tuple[str, str]:
        """The section and the setting that limit the train questions, or the passages that these are written about."""
        return (WRITTEN, "max_passages") if self.written else ("ingest", "max_train_queries")

    @property
    def used(self) -> int | None:
        """The recipe's limit of train questions, or of passages that a language model is asked about; None = all."""
        section, setting = self.limited
        limit: int | None = getattr(self.settings[section], setting)
        return limit

    @property
    def all_questions(self) -> float:
        """The share that uses every question, or asks about every passage; 1 if the recipe does."""
        scale, used = self.scale(None), self.used
        there = scale.queries["train"] if self.labelled else scale.passages if self.written else 0
        return max(1.0, there / used) if used else 1.0

    @cached_property
    def most(self) -> float:
        """The share at which every training reaches its epochs over all of the source's questions.

        Of made questions, at most `MOST_MADE`.
        """
        if not self.labelled:
            return min(MOST_MADE, self.all_questions)
        scale = self.scale(None)
        limits = [self.limit(step, scale) / (self.settings[step.name].max_steps or math.inf) for step in self.trainings]
        return max(1.0, self.all_questions, *limits)

    def scale(self, questions: int | None) -> Scale:
        """The scale of a run that uses at most so many train questions, or asks about so many passages."""
        section, setting = self.limited
        changed = replace(self.settings[section], **{setting: questions})
        return scale_of_look(self.settings | {section: changed}, self.look)

    def limit(self, step: GraphStep, scale: Scale) -> int:
        """The steps of a training's epochs; without a number of epochs, those of the recipe."""
        config = self.settings[step.name]
        return steps_of(step.kind, replace(config, max_steps=None) if config.epochs else config, scale)

    def of(self, share: float) -> Amount:
        """The settings of a share; none for those that are the recipe's."""
        used, (section, setting) = self.used, self.limited
        more = min(share, self.all_questions)
        asked = used
        if used and self.written and share < 1:
            asked = min(used, self.scale(None).passages)
            asked = max(min(FEWEST_ASKED, asked), int(share * asked))
        elif used and more > 1:
            asked = int(more * used) if more < self.all_questions else None
        scale = self.scale(asked)
        found: dict[str, dict[str, float | None]] = {} if asked == used else {section: {setting: asked}}
        repeated = max(1.0, share / self.most)
        for step in self.trainings:
            config = self.settings[step.name]
            steps = steps_of(step.kind, config, scale)
            if share < 1:
                found[step.section] = {"max_steps": max(min(FEWEST_STEPS, steps), int(share * steps))}
            elif config.max_steps:
                longer = int(min(repeated * self.limit(step, scale), share * config.max_steps))
                if longer > steps:
                    epochs = {"epochs": math.ceil(repeated * config.epochs)} if repeated > 1 and config.epochs else {}
                    found[step.section] = {"max_steps": longer} | epochs
        return found

    def seconds(self, share: float) -> float:
        """The time of a run with this share."""
        found = forecast(with_sections(self.recipe, self.of(share)), self.look)
        return found.total if found else math.inf

    def largest(self, low: float, high: float, budget: float) -> Amount:
        """The settings of the largest share from `low` to `high` with which a run takes at most `budget` seconds."""
        if self.seconds(high) <= budget:
            return self.of(high)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.seconds(middle) <= budget else (low, middle)
        return self.of(low)


def described(recipe: Recipe, look: FirstLook | None) -> list[str]:
    """A line on the labelled questions and the steps of a run, or on the passages that a model writes questions about.

    None for questions that are made of sentences, of an unknown number.
    """
    if look is None:
        return []
    amounts = Amounts(recipe, look)
    if amounts.written and amounts.all_questions > 1:
        there = amounts.scale(None).passages
        return [f"questions are written about {amounts.used:,} of {there:,} passages; {MORE_WRITTEN}"]
    if makes_pairs(amounts.settings["ingest"], look):
        return []
    scale, there = amounts.scale(amounts.settings["ingest"].max_train_queries), amounts.scale(None).queries["train"]
    used, number = scale.queries["train"], f"{there:,}" if look.whole else f"at least {there:,}"
    steps = [
        f"{steps_of(step.kind, amounts.settings[step.name], scale):,} of {step.name}" for step in amounts.trainings
    ]
    of = f"all {'' if look.whole else 'of '}{number}" if used == there else f"{used:,} of {number}"
    lines = [f"training uses {of} questions; steps: {', '.join(steps)}"]
    return lines + [MORE] * (used < there and amounts.labelled and amounts.seconds(1.0) < math.inf)
