"""Low-rank adaptation and gradient checkpointing of a retriever's training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from families import hugging_face_folder, opened, saved
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder
from stillhouse.training.low_rank import checkpointed, low_rank

pytestmark = pytest.mark.usefixtures("last_parameters")
Run = Callable[..., dict[str, Path]]
TUNING = {"max_steps": 4, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 4, "precision": "fp32"}
TUNING |= {"learning_rate": 0.01}


@pytest.fixture(params=["bert", "qwen3"])
def start(request: pytest.FixtureRequest, run_step: Run, tmp_path: Path) -> Path:
    base = saved([opened(request.param, tmp_path / "transformer"), Pooling(32, "mean")], tmp_path / "base")
    return run_step("fetch-model", {}, model=str(base), query_length=16, passage_length=24)["encoder"]


@pytest.fixture
def train(run_step: Run, small_corpus: Path, start: Path) -> Callable[..., dict[str, torch.Tensor]]:
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["negatives"]

    def trained(name: str, **settings: object) -> dict[str, torch.Tensor]:
        inputs = {"corpus": small_corpus, "encoder": start, "negatives": negatives}
        folder = run_step("train-retriever", inputs, name, **(TUNING | settings))["retriever"]
        return BiEncoder.load(folder).state_dict()

    return trained


def test_each_matrix_changes_by_at_most_the_rank(train: Callable[..., dict[str, torch.Tensor]], start: Path) -> None:
    before, after = BiEncoder.load(start).state_dict(), train("low", lora_rank=3)
    assert before.keys() == after.keys()
    changes = {name: after[name] - values for name, values in before.items() if not values.equal(after[name])}
    ranks = [int(torch.linalg.matrix_rank(change, atol=1e-5)) for change in changes.values()]
    assert len(ranks) >= 8 and max(ranks) == 3
    assert not [name for name in changes if "embed" in name]


def test_the_change_is_saved_apart_too(
    train: Callable[..., dict[str, torch.Tensor]], start: Path, tmp_path: Path
) -> None:
    """peft adds it to the base model, and gets the merged one."""
    before, after, _ = BiEncoder.load(start).state_dict(), train("once", lora_rank=2), train("again", lora_rank=2)
    assert any(not values.equal(after[name]) for name, values in before.items())
    retrievers = [tmp_path / name / "retriever" for name in ("once", "again")]
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        first, second = ((folder / "adapter" / file).read_bytes() for folder in retrievers)
        assert first == second and str(tmp_path).encode() not in first
    base = SentenceTransformer(str(start), device="cpu", model_kwargs={"dtype": "float32"})
    merged = PeftModel.from_pretrained(base[0].model, str(retrievers[0] / "adapter")).merge_and_unload().state_dict()
    trained = SentenceTransformer(str(retrievers[0]), device="cpu")[0].model.state_dict()
    for name, values in trained.items():
        torch.testing.assert_close(merged[name], values, atol=1e-6, rtol=0)


def test_frozen_matrices_in_bf16_are_half_as_large_and_change_by_the_rank_alone(
    train: Callable[..., dict[str, torch.Tensor]], start: Path
) -> None:
    encoder = BiEncoder.load(start)
    with low_rank(encoder, 3, "bf16"):
        layers = [layer for layer in encoder.modules() if isinstance(layer, torch.nn.Linear)]
        halves = {layer.weight.requires_grad: layer.weight.dtype for layer in layers}
        assert halves == {True: torch.float32, False: torch.bfloat16}
    before = BiEncoder.load(start).state_dict()
    after = train("half", lora_rank=3, frozen_weights="bf16", precision="bf16")
    ranks = []
    for name, values in before.items():
        assert after[name].dtype == torch.float32
        if not after[name].equal(values):
            change = after[name] - values.bfloat16().float()
            ranks.append(int(torch.linalg.matrix_rank(change, atol=1e-5)))
    assert len(ranks) >= 8 and max(ranks) == 3


def test_bf16_is_for_frozen_matrices_alone(train: Callable[..., dict[str, torch.Tensor]]) -> None:
    for settings in ({"precision": "bf16"}, {"lora_rank": 3}):
        with pytest.raises(InputError, match="frozen_weights"):
            train("whole", frozen_weights="bf16", **settings)


def test_checkpointing_changes_no_result(train: Callable[..., dict[str, torch.Tensor]]) -> None:
    plain = train("plain", padding="kept", lora_rank=2)
    twice = train("twice", padding="kept", lora_rank=2, gradient_checkpointing=True)
    for name, values in plain.items():
        torch.testing.assert_close(twice[name], values, atol=1e-5, rtol=0)


def test_a_model_without_checkpointing_is_refused(tmp_path: Path) -> None:
    encoder = BiEncoder.load(hugging_face_folder("mpnet", tmp_path / "model"))
    with pytest.raises(InputError, match="MPNetModel cannot"), checkpointed(encoder, True):
        pass


def test_an_encoder_decoder_has_one_adapter(tmp_path: Path) -> None:
    encoder = BiEncoder.load(hugging_face_folder("t5", tmp_path / "model"))
    with low_rank(encoder, 2):
        pass
    assert len(encoder.adapters) == 1


def test_checkpointing_cannot_leave_padding_out(train: Callable[..., dict[str, torch.Tensor]]) -> None:
    with pytest.raises(InputError, match="padding: kept"):
        train("none", padding="none", gradient_checkpointing=True)


def test_a_bag_of_words_has_no_matrices_to_adapt() -> None:
    from stillhouse.models.encoder_settings import EncoderSettings
    from stillhouse.models.towers import BagOfWordsTower

    bag = BiEncoder({"passage": BagOfWordsTower(9, (1,), 4, 8, 6)}, None, EncoderSettings())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lora_rank is for towers with a Transformer"), low_rank(bag, 2):
        pass
