"""The language of a corpus decides how BM25 stems, and an index keeps what it was made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.search.bm25 import BM25, Terms, language_of

SENTENCES = {
    "en": "The river rises in the mountains and flows through three countries to the sea.",
    "de": "Der Fluss entspringt in den Bergen und fließt durch drei Länder ins Meer.",
    "ar": "ينبع النهر من الجبال ويمر عبر ثلاث دول حتى يصل إلى البحر.",
    "hi": "नदी पहाड़ों से निकलती है और तीन देशों से होकर समुद्र तक बहती है।",
    "zh": "这条河发源于山区，流经三个国家，最后注入大海。",
    "ja": "この川は山から流れ出て、三つの国を通って海に注ぎます。",
    "th": "แม่น้ำสายนี้ไหลจากภูเขาผ่านสามประเทศลงสู่ทะเล",
    "no": "Elva springer ut i fjellene og renner gjennom tre land før den når havet.",
}
INFLECTED = {
    "de": (["Die Häuser der Stadt wurden zerstört.", "Der Garten ist grün und groß."], "Haus", 0),
    "hi": (["लड़कियां स्कूल जाती हैं।", "किताबें मेज पर रखी हैं।"], "किताब", 1),
    "ja": (["石門村は何で知られています。", "長野川市は絹織物で知られています。"], "絹織物の市はどこ", 1),
}


@pytest.mark.parametrize("code", SENTENCES)
def test_the_language_of_a_corpus_is_found(code: str) -> None:
    assert language_of([SENTENCES[code]] * 3) == code


def test_texts_without_letters_have_no_language() -> None:
    assert language_of(["12 34", "…"]) == language_of([]) == ""
    assert Terms.of_language("") == Terms("", "", "")


@pytest.mark.parametrize("code", INFLECTED)
def test_an_inflected_or_joined_word_is_found(code: str, tmp_path: Path) -> None:
    texts, query, right = INFLECTED[code]
    BM25.of(texts, 1.5, 0.75, code).save(tmp_path)
    rows_QK, scores_QK = BM25.load(tmp_path).search([query], 2)
    assert rows_QK[0, 0] == right and scores_QK[0, 0] > 0
    assert BM25.of(texts, 1.5, 0.75, "en").terms != BM25.load(tmp_path).terms


def test_an_index_without_its_terms_or_with_unknown_ones_is_refused(tmp_path: Path) -> None:
    BM25.of(["a red bird"], 1.5, 0.75).save(tmp_path)
    path = tmp_path / "terms.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    for damaged in ({**kept, "stemmer": "klingon"}, {**kept, "stop_words": "xx"}, {"language": "en"}, [], None):
        path.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(InputError, match="no BM25 index"):
            BM25.load(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="no BM25 index"):
        BM25.load(tmp_path)
