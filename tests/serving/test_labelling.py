"""A person labels passages in a page: every question is on the disk at once, and chooses among retrievers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml
from beir_source import write_beir
from shown_page import Page

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.relevance import JudgedQueries
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.serving import labelling
from stillhouse.serving.labelling import Labelling, Labels, make_server

TRAP = '"><script>alert(1)</script><img src=x onerror=alert(2)> &amp; '


@pytest.fixture
def source(tmp_path: Path) -> Path:
    words = ("bird", "fish", "tree", "stone", "cloud", "river")
    rows = [
        {"_id": f"p{n}", "title": f"{TRAP}{word}", "text": f"{TRAP} the {word} and the {words[n - 1]} are alike"}
        for n, word in enumerate(words)
    ]
    return write_beir(tmp_path / "source", rows)


def ingested(source: Path, folder: Path, **settings: object) -> Corpus:
    step = find_step("ingest")
    execute(step, step.config(source=str(source), **settings), {}, {"corpus": folder})
    return Corpus.open(folder)


class Browser:
    """A browser of the page of a folder of answers, wanted for `wanted` questions."""

    def __init__(self, corpus: Corpus, folder: Path, wanted: int = 3) -> None:
        self.labels = Labels(folder, "source", corpus)
        self.server = make_server(Labelling(corpus, self.labels, wanted, seed=1), 0)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ask(self, method: str, place: str = "/", body: str = "", **headers: str) -> tuple[int, str]:
        there = HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        there.request(method, place, body or None, headers)
        answer = there.getresponse()
        return answer.status, answer.read().decode()

    def shown(self, **fields: object) -> str:
        status, text = self.ask("GET", f"/?{urlencode(fields, doseq=True)}")
        assert status == 200
        return text

    def passage(self) -> str:
        return re.findall(r'name="passage" value="([^"]*)"', self.shown())[0]

    def send(self, **fields: object) -> int:
        return self.ask("POST", body=urlencode(fields, doseq=True))[0]


@pytest.fixture
def corpus(source: Path, tmp_path: Path) -> Corpus:
    return ingested(source, tmp_path / "corpus", queries="source")


@pytest.fixture
def browser(corpus: Corpus, tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(corpus, tmp_path / "questions")
    yield opened
    opened.server.shutdown()


def test_questions_are_saved_at_once_and_the_next_start_continues(
    browser: Browser, corpus: Corpus, tmp_path: Path
) -> None:
    folder = tmp_path / "questions"
    first = browser.passage()
    assert browser.send(passage=first, question="  which one\nis it ", relevant=["p1", "p1", "nowhere"]) == 303
    skipped = browser.passage()
    assert browser.send(passage=skipped, question="not kept", skip="1") == 303
    assert len({first, skipped, browser.passage()}) == 3
    lines = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    assert lines == [{"_id": f"label:{first}", "text": "which one is it"}]
    rows = (folder / "qrels" / "dev.tsv").read_text().splitlines()[1:]
    assert rows == [f"label:{first}\t{id}\t1" for id in dict.fromkeys((first, "p1"))]
    again = Browser(corpus, folder)
    assert again.passage() == browser.passage() and "1 of 3 questions" in again.shown()
    assert again.send(passage=first, question="changed") == 303
    assert again.labels.texts == {first: "changed"} and again.labels.relevant == {first: [first]}
    for number in range(2):
        assert again.send(passage=again.passage(), question=f"more {number}") == 303
    assert "Done" in again.shown()
    again.server.shutdown()


def test_a_question_that_a_kill_cut_off_is_asked_again(
    browser: Browser, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passage = browser.passage()

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(labelling, "write_queries", killed)
        browser.labels.save(passage, "half", [passage])
    assert passage in (tmp_path / "questions" / "qrels" / "dev.tsv").read_text()
    again = Labels(tmp_path / "questions", "source", corpus)
    assert again.texts == {} and again.relevant == {}

    again.save(passage, "whole", [passage])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(labelling, "write_queries", killed)
        again.skip(passage)
    assert "whole" in (tmp_path / "questions" / "queries.jsonl").read_text()
    assert Labels(tmp_path / "questions", "source", corpus).texts == {}


def test_texts_are_only_text_and_hits_can_be_ticked(browser: Browser) -> None:
    passage = browser.passage()
    text = browser.shown(passage=passage, question=f"{TRAP}fish", search="", relevant=["p3"])
    page = Page(text)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, names in page.tags for name in names if name.startswith("on") or name == "src"]
    assert page.shown.count("<script>alert(1)</script>") >= 4
    boxes = [names for tag, names in page.tags if tag == "input" and names.get("type") == "checkbox"]
    found = {names["value"]: "checked" in names for names in boxes}
    assert found["p3"] and not any(found[id] for id in found.keys() - {"p3"})
    assert {"p1", "p2"} - {passage} <= found.keys() and passage not in found
    [question] = [names["value"] for tag, names in page.tags if names.get("name") == "question"]
    assert question == f"{TRAP}fish"
    assert browser.send(passage=passage, question=TRAP) == 303 and not {"script", "img"} & {
        tag for tag, _ in Page(browser.shown()).tags
    }
    browser.labels.save(passage, "fish", [passage, "p3"])
    assert " checked>" in browser.shown(passage=passage)
    assert " checked>" not in browser.shown(passage=passage, question="fish"), "unticked, then searched"


def test_the_last_page_names_the_next_command(browser: Browser, tmp_path: Path) -> None:
    for number in range(3):
        assert browser.send(passage=browser.passage(), question=f"question {number}") == 303
    assert "stillhouse new WORKSPACE --source source --questions" in browser.shown()
    browser.labels.source = str(tmp_path)
    (tmp_path / "params.yaml").touch()
    assert "stillhouse new" not in browser.shown() and str(tmp_path / "questions") in browser.shown()


def test_other_sites_and_empty_questions_are_refused(browser: Browser) -> None:
    body = urlencode({"passage": browser.passage(), "question": "theirs"})
    assert browser.ask("POST", body=body, Origin="http://evil.example")[0] == 403
    assert browser.ask("POST", body=body, Origin="null")[0] == 403
    assert browser.ask("GET", Host="evil.example")[0] == 404
    assert browser.send(passage=browser.passage(), question=" \n ") == 422
    assert browser.send(passage="nowhere", question="a") == 422
    assert browser.labels.texts == {}
    assert browser.server.server_address[0] == "127.0.0.1"


def test_a_folder_of_something_else_is_refused(browser: Browser, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was not made by `stillhouse label`"):
        Labels(tmp_path / "source", "source", corpus)
    assert browser.send(passage=browser.passage(), question="mine") == 303
    other = write_beir(tmp_path / "other", [{"_id": "else", "text": "another corpus"}])
    with pytest.raises(InputError, match="that other does not have"):
        Labels(tmp_path / "questions", "other", ingested(other, tmp_path / "else", queries="source"))
    kept = tmp_path / "questions" / "queries.jsonl"
    kept.write_text('{"_id": "label:p0", "text": "a "quoted" word"}\n' + kept.read_text())
    with pytest.raises(InputError, match=r"queries\.jsonl:1 cannot be read"):
        Labels(tmp_path / "questions", "source", corpus)


def test_real_dev_questions_replace_made_ones_in_the_choice(browser: Browser, source: Path, tmp_path: Path) -> None:
    passage = browser.passage()
    assert browser.send(passage=passage, question="mine alone") == 303
    work, folder = tmp_path / "work", tmp_path / "questions"
    assert cli.main(["new", str(work), "--source", str(source), "--questions", str(folder)]) == 0
    settings = yaml.safe_load((work / "params.yaml").read_text())
    assert (work / settings["ingest"]["dev_queries"]).resolve() == folder.resolve()
    assert settings["graph"] == "unlabelled"
    made = ingested(source, tmp_path / "made", heldout_dev_articles=0.3, pair_sentence_words=1)
    real = ingested(source, tmp_path / "real", heldout_dev_articles=0.3, pair_sentence_words=1, dev_queries=str(folder))
    assert len(JudgedQueries(made)) > 0 and not JudgedQueries(made).labelled
    judged = JudgedQueries(real)
    assert judged.labelled and judged.texts == ["mine alone"]
    assert real.passage_ids[judged.answers_QP[0]].tolist() == [passage]


def test_a_killed_command_continues(source: Path, tmp_path: Path) -> None:
    code = (
        "import signal, sys; from stillhouse import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the tests' caller ignores it\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "label", str(source), str(tmp_path / "out"), "--port", "0"]
    for done in (0, 1):
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            assert process.stdout
            [port] = re.findall(r"127\.0\.0\.1:(\d+)/", process.stdout.readline())
            there = HTTPConnection("127.0.0.1", int(port), timeout=30)
            there.request("GET", "/")
            text = there.getresponse().read().decode()
            assert f"{done} of 20 questions" in text
            [passage] = re.findall(r'name="passage" value="([^"]*)"', text)
            there.request("POST", "/", urlencode({"passage": passage, "question": "one"}))
            assert there.getresponse().status == 303
            process.send_signal(signal.SIGKILL if not done else signal.SIGINT)
            assert process.wait() == (0 if done else -signal.SIGKILL)
    assert len((tmp_path / "out" / "queries.jsonl").read_text().splitlines()) == 2
