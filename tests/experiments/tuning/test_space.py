"""A space file: what it may contain, and the errors for one that cannot be tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FixedTrial
from stand_in_steps import RECIPE

from stillhouse.core.errors import InputError
from stillhouse.experiments.tuning.search import trial_steps
from stillhouse.experiments.tuning.space import SPACES, Row, read_space


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: {}", "must have `settings`"),
        ("parameters: {a.b: 1}\nsettings: {a.b: {choices: [1]}}", "unknown key 'parameters'"),
        ("settings: {retreiver_1.epochs: {choices: [1.0]}}", "no section 'retreiver_1'; did you mean 'retriever_1'"),
        ("settings: {retriever_1.epoch: {choices: [1.0]}}", "no setting 'epoch'; did you mean 'epochs'"),
        ("settings: {retriever_1.epochs: {min: 1}}", "write {min: …, max: …}"),
        ("settings: {retriever_1.epochs: {min: 3, max: 2}}", "min must be below max"),
        ("settings: {retriever_1.epochs: {min: 1, max: 2, scale: lgo}}", "did you mean 'log'"),
        ("settings: {retriever_1.epochs: {min: -1, max: 2}}", "must be at least 0"),
        ("settings: {retriever_1.contrastive: {min: 1, max: 2}}", "is not a number; list its values"),
        ("settings: {retriever_1.contrastive: {choices: [plian]}}", "did you mean 'plain'"),
        ("always: {retriever_1.epochs: x}\nsettings: {retriever_1.seed: {choices: [1]}}", "must be a number"),
        ("retriever: r7\nsettings: {retriever_1.seed: {choices: [1]}}", "no retriever 'r7' with an index"),
        ("settings: {distilled.seed: {choices: [1]}}", "does not depend on distilled"),
        ("settings: {ingest.source: {choices: [a, b]}}", "reads a source, so its settings cannot be tuned"),
    ],
)
def test_a_wrong_space_is_refused_with_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        trial_steps(RECIPE, "params.yaml", read_space(path, RECIPE))
    assert message in str(refused.value)


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_spaces_fit_the_shipped_recipe(path: Path) -> None:
    space = read_space(path, RECIPE)
    assert trial_steps(RECIPE, "labelled", space)[-1].name == f"{space.retriever}_index"


def test_drawn_numbers_have_two_digits_and_stay_within() -> None:
    drawn: Any = FixedTrial({"a": 2.3456e-5, "b": 0.01231, "c": "[0.5]"})
    assert Row(low=1e-5, high=1.234e-4, log=True).suggested(drawn, "a") == 2.3e-5
    assert Row(low=0.0123, high=1.0).suggested(drawn, "b") == 0.0123
    assert Row(choices=([0.5], [1.0])).suggested(drawn, "c") == [0.5]
