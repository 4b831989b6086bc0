"""Changes a bit or byte of each file that a step reads, including manifests: the step names it and does not start."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from micro_steps import RUN_STEPS

from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import GraphStep
from stillhouse.pipeline.steps.execute import open_inputs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def to_hurt(calm: tuple[Path, dict[str, float]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the calm run's artifacts, because other tests read the originals."""
    return shutil.copytree(calm[0], tmp_path_factory.mktemp("to_hurt") / "artifacts")


@pytest.mark.parametrize("damage", ["a bit", "a byte less"])
@pytest.mark.parametrize("step", [step for step in RUN_STEPS if step.inputs], ids=lambda step: step.name)
def test_damage_is_named_before_any_work(step: GraphStep, damage: str, to_hurt: Path) -> None:
    chance = random.Random(f"{step.name} {damage}")
    inputs = {name: path for name, path in step.input_paths(to_hurt).items() if path}
    assert open_inputs(step.spec, inputs)
    for hurt in sorted(path for folder in inputs.values() for path in folder.rglob("*") if path.is_file()):
        whole = hurt.read_bytes()
        broken = bytearray(whole)
        if not whole:
            continue
        broken[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        try:
            hurt.write_bytes(broken if damage == "a bit" else whole[:-1])
            with pytest.raises(InputError, match=hurt.name):
                open_inputs(step.spec, inputs)
        finally:
            hurt.write_bytes(whole)
