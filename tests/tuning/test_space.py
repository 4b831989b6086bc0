"""A space file: what it may contain, and the errors for one that cannot be searched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from stand_in_steps import RECIPE

from stillhouse.errors import InputError
from stillhouse.tuning.space import Choices, Range, Space, find_space, read_space
from stillhouse.tuning.trial_graph import trial_graph


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have `settings`"),
        ("settings: {}", "must have `settings`"),
        ("parameters: {a.b: 1}\nsettings: {a.b: {choices: [1]}}", "unknown key 'parameters'"),
        ("settings: {retreiver_1.epochs: {choices: [1.0]}}", "no section 'retreiver_1'; did you mean 'retriever_1'"),
        ("settings: {retriever_1.epoch: {choices: [1.0]}}", "no setting 'epoch'; did you mean 'epochs'"),
        ("settings: {retriever_1.epochs: 3}", "must be {min: …, max: …} or {choices: […]}"),
        ("settings: {retriever_1.epochs: {min: 1}}", "has no max"),
        ("settings: {retriever_1.epochs: {min: 3, max: 2}}", "min 3.0 must be below max 2.0"),
        ("settings: {retriever_1.epochs: {min: 1, max: 2, step: 1}}", "unknown key 'step'"),
        ("settings: {retriever_1.epochs: {min: 1, max: 2, scale: lgo}}", "did you mean 'log'"),
        ("settings: {retriever_1.epochs: {min: 0, max: 2, scale: log}}", "scale log needs a min above 0"),
        ("settings: {retriever_1.epochs: {min: -1, max: 2}}", "must be at least 0"),
        ("settings: {retriever_1.batch_size: {min: 1.5, max: 2}}", "must be a whole number"),
        ("settings: {retriever_1.contrastive: {min: 1, max: 2}}", "is not a number: list its values with {choices"),
        ("settings: {retriever_1.contrastive: {choices: [plian]}}", "did you mean 'plain'"),
        ("settings: {retriever_1.epochs: {choices: []}}", "choices must be a list of values"),
        ("settings: {retriever_1.epochs: {choices: [1, 1.0]}}", "choices contain a value twice"),
        ("settings: {ingest.source: {choices: [a, b]}}", "is a location, which cannot be searched"),
        ("always: {retriever_1.epochs: 1}\nsettings: {retriever_1.epochs: {choices: [1.0]}}", "keep one of the two"),
        ("always: {retriever_1.epochs: x}\nsettings: {retriever_1.seed: {choices: [1]}}", "must be a number"),
        ("always: 3\nsettings: {retriever_1.seed: {choices: [1]}}", "always must map section.setting"),
        ("retriever: [a]\nsettings: {retriever_1.seed: {choices: [1]}}", "retriever must be the name of a stage"),
    ],
)
def test_a_wrong_space_is_refused_with_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_space(path, RECIPE)
    assert message in str(refused.value) and str(path) in str(refused.value)


def test_the_shipped_space_fits_the_shipped_recipe() -> None:
    """Every choice and both ends of every range are valid settings. The first training has a graph of its own."""
    space = read_space(find_space("labelled"), RECIPE)
    whole = trial_graph(RECIPE, "labelled", space, "averaged")
    assert whole.space.parameters == space.parameters
    for parameter in space.parameters:
        domain = parameter.domain
        ends = domain.values if isinstance(domain, Choices) else (domain.low, domain.high)
        for value in ends:
            whole.configs({parameter.key: value, **space.always})
    first = trial_graph(RECIPE, "labelled", space)
    assert first.retriever == "retriever_1/retriever" and first.index == "retriever_1_index"
    assert {one.section for one in first.space.parameters} == {"mine_1", "retriever_1"}
    assert [use.name for use in first.own] == ["mine_1", "retriever_1", "retriever_1_index"]
    assert not {use.name for use in first.shared} & {use.name for use in first.own}


def test_kinds_are_those_of_the_settings(space_of: Callable[[str], Space]) -> None:
    found = space_of(
        "settings: {retriever_1.batch_size: {min: 8, max: 64, scale: log}, mine_1.margin: {choices: [none]}}"
    )
    size, margin = found.parameters
    assert size.domain == Range(8, 64, log=True, whole=True) and size.domain.rounded(31.7) == 32
    assert margin.domain == Choices(("none",))


def test_drawn_numbers_have_two_digits_and_stay_within() -> None:
    rate = Range(1e-5, 1.234e-4, log=True, whole=False)
    assert rate.rounded(2.3456e-5) == 2.3e-5
    assert rate.rounded(1.2339e-4) == 1.2e-4
    assert Range(0.0123, 1.0, log=False, whole=False).rounded(0.01231) == 0.0123


@pytest.mark.parametrize(
    ("text", "retriever", "message"),
    [
        ("settings: {retriever_1.seed: {choices: [1]}}", "retriever_7", "no retriever 'retriever_7' with an index"),
        ("settings: {distilled.seed: {choices: [1]}}", "retriever_1", "depends on none of the searched settings"),
        (
            "settings: {ingest.max_train_queries: {choices: [1]}}",
            "retriever_1",
            "reads a source, so its settings cannot be searched",
        ),
    ],
)
def test_a_graph_that_cannot_be_searched_is_refused(
    text: str, retriever: str, message: str, space_of: Callable[[str], Space]
) -> None:
    with pytest.raises(InputError, match=message):
        trial_graph(RECIPE, "params.yaml", space_of(text), retriever)
