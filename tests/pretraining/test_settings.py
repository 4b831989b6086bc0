"""Settings change rows of the objective table, and contradictory settings are refused."""

from __future__ import annotations

import pytest

from stillhouse.core.errors import InputError
from stillhouse.pretraining.objectives import NAMES, PAIR_TABLE, Corruption, find_objective
from stillhouse.pretraining.settings import PretrainingConfig


@pytest.mark.parametrize("name", [*NAMES, *(row.name for row in PAIR_TABLE)])
def test_defaults_leave_rows_as_they_are(name: str) -> None:
    assert PretrainingConfig(objective=name).row() == find_objective(name)


def test_changes_of_a_row() -> None:
    row = PretrainingConfig(
        objective="cdmae", mask_replacement="mask", bottleneck="raw", decoder_init="last_layers", decoder_layers=1
    ).row()
    assert (row.encoder, row.decoder_corruption) == (Corruption("random", "mask"), Corruption("importance", "mask"))
    assert (row.bottleneck, row.decoder_init, row.decoder_layers) == ("raw", "last_layers", 1)
    kept = PretrainingConfig(objective="simlm", mask_replacement="mask").row()
    assert kept.encoder.replacement == "generator", "a generator's tokens are no masks"


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least encoder_mlm_probability"):
        PretrainingConfig(objective="enc_dec_mlm", encoder_mlm_probability=0.5, decoder_mlm_probability=0.3)
    PretrainingConfig(objective="cdmae", encoder_mlm_probability=0.5, decoder_mlm_probability=0.3)
    with pytest.raises(InputError, match="needs signals"):
        PretrainingConfig(metric_for_best_model="coverage@20", signals=False)
