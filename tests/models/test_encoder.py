"""The bi-encoder and the cross-encoder, compared with transformers and sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as OtherCrossEncoder
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import BiEncoder, encode, length_batches
from stillhouse.models.encoder_settings import EncoderSettings, read_settings
from stillhouse.models.pair_scores import score_pairs
from stillhouse.models.pooling import pool
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.source import fetch
from stillhouse.models.tokenizer_files import save_tokenizer

FP32 = InferenceConfig(precision="fp32", batch_tokens=40)
TEXTS = ["the red bird sings", "a fish", "which tree grows in the blue one and the green two", "three birds"]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, "cpu", quiet=True)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("normalize", [True, False])
def test_sentence_transformers_gives_the_same_vectors(
    tiny_model: Path, tmp_path: Path, context: Context, pooling: str, normalize: bool
) -> None:
    encoder = BiEncoder.load(tiny_model, pooling=pooling, normalize=normalize, passage_length=8)
    encoder.save(tmp_path / "retriever")
    ours = encode(encoder, encoder.passages(TEXTS), context, "test", InferenceConfig(precision="fp32", batch_tokens=16))
    theirs = SentenceTransformer(str(tmp_path / "retriever"), device="cpu").encode(TEXTS)
    assert np.allclose(ours, theirs, atol=1e-5)
    loaded = BiEncoder.load(tmp_path / "retriever")
    assert loaded.settings == EncoderSettings(pooling, normalize, 32, 8)
    assert read_settings(tmp_path / "retriever").pooling == pooling


def test_hidden_states_are_those_of_automodel(tiny_model: Path, tmp_path: Path) -> None:
    encoder = BiEncoder.load(tiny_model)
    encoder.save(tmp_path / "retriever")
    ids, mask = encoder.passages(TEXTS).batch(range(4), torch.device("cpu"))
    with torch.no_grad():
        expected = AutoModel.from_pretrained(tiny_model)(input_ids=ids, attention_mask=mask).last_hidden_state
        found = AutoModel.from_pretrained(tmp_path / "retriever")(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.equal(expected, found)


def test_batches_hold_every_text_once_within_the_budget() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, size=200)
    batches = list(length_batches(lengths, tokens=128))
    assert sorted(np.concatenate(batches)) == list(range(200))
    assert all(len(rows) * lengths[rows].max() <= 128 for rows in batches)
    assert [rows.tolist() for rows in length_batches(np.array([500]), tokens=128)] == [[0]]


def test_a_cross_encoder_loads_with_the_same_scores_elsewhere(
    tiny_model: Path, tmp_path: Path, context: Context
) -> None:
    torch.manual_seed(0)
    CrossEncoder.start(tiny_model, max_length=24).save(tmp_path / "reranker")
    model = CrossEncoder.load(tmp_path / "reranker")
    queries, passages = np.array(["where does the bird sing", "a fish"], dtype=object), np.array(TEXTS, dtype=object)
    query, row = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 2, 3, 2])
    ours = score_pairs(model, queries, passages, query, row, context, "test", FP32)
    pairs = [(queries[q], passages[r]) for q, r in zip(query, row)]
    theirs = OtherCrossEncoder(str(tmp_path / "reranker"), device="cpu", max_length=24).predict(pairs)
    assert np.allclose(ours, theirs, atol=1e-5) and len(set(ours.round(6))) > 1


def test_an_encoder_is_not_read_as_a_cross_encoder_or_vice_versa(tiny_model: Path, tmp_path: Path) -> None:
    CrossEncoder.start(tiny_model, max_length=24).save(tmp_path / "reranker")
    fetch(str(tiny_model), None, "mean", 16, 48, _made(tmp_path / "encoder"))
    with pytest.raises(InputError, match="is a cross-encoder, which scores pairs and makes no vectors"):
        BiEncoder.load(tmp_path / "reranker")
    with pytest.raises(InputError, match="has no layer that gives one score per pair"):
        CrossEncoder.load(tmp_path / "encoder")
    config = tmp_path / "encoder" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_labels": 1, "id2label": {"0": "x"}}))
    with pytest.raises(InputError, match="has no layer that gives one score per pair"):
        CrossEncoder.load(tmp_path / "encoder")
    with pytest.raises(InputError, match="has no model that scores pairs; `stillhouse train-reranker`"):
        CrossEncoder.load(_made(tmp_path / "nothing"))
    fetch(str(tmp_path / "reranker"), None, "mean", 16, 48, _made(tmp_path / "start"))
    assert BiEncoder.load(tmp_path / "start").width == 32


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_long_pair_keeps_its_whole_query(tiny_model: Path) -> None:
    model = CrossEncoder.start(tiny_model, max_length=12)
    pair = model.pairs(["the red bird sings"], ["the blue fish swims in the green tree and grows"]).ids.ids[0]
    assert len(pair) == 12 and pair[1:5] == model.tokenizer("the red bird sings", add_special_tokens=False)["input_ids"]


def test_fetch_keeps_the_first_layers_and_says_that_there_is_no_head(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    facts = fetch(str(tiny_model), 1, "mean", 16, 48, tmp_path / "one")
    assert facts["layers"] == 1 and facts["lm_head"] == "absent" and facts["pooling"] == "mean"
    one, whole = AutoModel.from_pretrained(tmp_path / "one"), AutoModel.from_pretrained(tiny_model)
    assert len(one.encoder.layer) == 1
    assert torch.equal(one.encoder.layer[0].output.dense.weight, whole.encoder.layer[0].output.dense.weight)
    assert BiEncoder.load(tmp_path / "one").settings == EncoderSettings("mean", True, 16, 48)


@pytest.fixture
def electra(tiny_model: Path, tmp_path: Path) -> Path:
    """Folders like google/electra-base-generator and -discriminator: embeddings are narrower than states."""
    from transformers import AutoTokenizer, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ElectraConfig(vocab_size=len(tokenizer), embedding_size=16, max_position_embeddings=64, **sizes)
    for name, kind in (("generator", ElectraForMaskedLM), ("discriminator", ElectraForPreTraining)):
        kind(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(("name", "head"), [("generator", "trained"), ("discriminator", "absent")])
def test_electra_is_fetched_with_the_head_that_it_has(electra: Path, name: str, head: str) -> None:
    (electra / "fetched").mkdir()
    facts = fetch(str(electra / name), None, None, 16, 48, electra / "fetched")
    assert facts["lm_head"] == head and facts["pooling"] == "cls"
    before, after = AutoModel.from_pretrained(electra / name), AutoModel.from_pretrained(electra / "fetched")
    for key, value in before.state_dict().items():
        assert torch.equal(after.state_dict()[key], value), key


def test_a_model_saved_in_half_precision_is_trained_in_single(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    AutoModel.from_pretrained(tiny_model, dtype=torch.float16).save_pretrained(tmp_path / "half")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "half")
    (tmp_path / "fetched").mkdir()
    fetch(str(tmp_path / "half"), None, None, 16, 48, tmp_path / "fetched")
    models = [BiEncoder.load(tmp_path / "half"), CrossEncoder.start(tmp_path / "half", 24)]
    models.append(BiEncoder.load(tmp_path / "fetched"))
    for model in models:
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_tokenizers_files_do_not_depend_on_how_it_was_loaded(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    written = []
    for name, offline in (("one", True), ("two", False)):
        save_tokenizer(AutoTokenizer.from_pretrained(tiny_model, local_files_only=offline), tmp_path / name)
        written.append({path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())})
    assert written[0] == written[1]
    assert str(tiny_model).encode() not in b"".join(written[0].values())


def test_mean_pooling_leaves_padding_out() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]]])
    assert pool(hidden, torch.tensor([[1, 1, 0]]), "mean").tolist() == [[2.0, 3.0]]
    assert pool(hidden, torch.tensor([[1, 1, 0]]), "cls").tolist() == [[1.0, 2.0]]
