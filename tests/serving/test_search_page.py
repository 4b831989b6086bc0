"""The search page: passages are only text, and matches are marked."""

from __future__ import annotations

import re
import time
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from serving_releases import BROWSER, TRAP, Running
from shown_page import Page

from stillhouse.serving.page import matches


def runs(text: str) -> list[str]:
    """What a page would run or fetch."""
    tags = Page(text).tags
    found = [tag for tag, _ in tags if tag in ("script", "img", "iframe", "link", "object")]
    return found + [name for _, names in tags for name in names if name.startswith("on") or name == "src"]


def test_text_of_passages_and_clients_is_never_executed(served: Running) -> None:
    answer = served.client.post("/", data={"query": f"swims {TRAP}", "top": "24"}, headers=BROWSER)
    page = Page(answer.text)
    assert runs(answer.text) == [] and "b" not in dict(page.tags)
    shown = re.sub(r"\s+", " ", page.shown)
    assert TRAP.split(" &")[0] in shown
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    about = served.client.get("/docs", headers=BROWSER)
    assert about.status_code == 200 and runs(about.text) == []
    bad = served.client.post("/", data={"query": TRAP, "top": "<script>alert(1)</script>"}, headers=BROWSER)
    assert bad.status_code == 422 and runs(bad.text) == []


def test_the_page_shows_what_search_finds(served: Running) -> None:
    page = served.client.post("/", data={"query": "red bird", "top": "5"}, headers=BROWSER).text
    [answer] = served.search(query="red bird", top=5)["answers"]
    places = [page.index(f"{hit['rank']}. {hit['title']}") for hit in answer["hits"]]
    shown = [" ".join(each.split()) for each in re.findall(r'<div class="where">(page.*?)</div>', page, re.DOTALL)]
    known = [hit["fields"] for hit in answer["hits"] if hit["fields"]]
    assert shown == [
        f"page: {f['page']} · product: {f['product']} · tags: x, {f['tags'][1]} · date: {f['date']}" for f in known
    ]
    assert places == sorted(places) and f"release {served.service.releases.current.name}" in page
    assert {"red", "bird"} >= {mark.lower() for mark in re.findall("<mark>(.*?)</mark>", page)} > set()


@given(text=st.text(max_size=60), query=st.text(max_size=20))
def test_marks_do_not_change_the_text(text: str, query: str) -> None:
    parts = matches(text, query)
    assert "".join(part for _, part in parts) == text
    asked = set(unicodedata.normalize("NFC", query.lower()))
    assert all(asked & set(part.lower()) for marked, part in parts if marked)


def test_marks_in_scripts_without_spaces_and_with_vowel_marks() -> None:
    assert matches("石門村は山あい、石の門。", "石門村は何") == [(True, "石門村は"), (False, "山あい、石の門。")]
    assert matches("मैं हिन्दी बोलता", "हिन्दी?") == [(False, "मैं "), (True, "हिन्दी"), (False, " बोलता")]


def test_a_long_question_is_marked_soon() -> None:
    """The service answers nobody in the meantime."""
    words = [f"{number:03x}" for number in range(4096)]
    query, text = " ".join(words[::2]), " ".join(words[1::2])
    began = time.process_time()
    for _ in range(100):
        assert not any(marked for marked, _ in matches(text, query))
    assert time.process_time() - began < 2


def test_marks_are_words_that_begin_alike() -> None:
    assert matches("Bats hunt; a bat, acrobats", "the bat at") == [
        (True, "Bats"),
        (False, " hunt; a "),
        (True, "bat"),
        (False, ", acrobats"),
    ]
