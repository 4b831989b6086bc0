"""The search page in a real browser: a question is typed and sent, and nothing in a passage runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving_releases import TRAP, Running, running

websocket = pytest.importorskip("websocket", reason="websocket-client, which comes with kubernetes, is not installed")
CHROMIUM = shutil.which("chromium") or ""
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed; `make test-tools` installs it")
LEVELS = ("warning", "error")
SECONDS = 30.0
"""How long Chromium may take to start and to answer."""


class Tab:
    """A page in Chromium, driven by its DevTools protocol. `errors` are the warnings and errors of its pages."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number, self._loads = socket, 0, 0
        self._session: dict[str, str] = {}
        self.errors: list[str] = []
        page = self._call("Target.createTarget", url="about:blank")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _read(self) -> Any:
        message = json.loads(self._socket.recv())
        self._loads += message.get("method") == "Page.loadEventFired"
        raised = message.get("method") == "Runtime.exceptionThrown"
        if raised or (message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] in LEVELS):
            self.errors.append(json.dumps(message["params"]))
        return message

    def _call(self, method: str, **settings: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": settings} | self._session))
        while (message := self._read()).get("id") != self._number:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        while self.value("document.readyState") != "complete":
            pass

    def value(self, expression: str) -> Any:
        """What JavaScript that this test runs, and not the page, returns."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def texts(self, selector: str) -> Any:
        return self.value(f"[...document.querySelectorAll({selector!r})].map(each => each.textContent)")

    def type(self, selector: str, text: str) -> None:
        self.value(f"document.querySelector({selector!r}).select()")
        self._call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Clicks with the mouse and waits for the next page."""
        box = f"(box => [box.x + box.width / 2, box.y + box.height / 2])(document.querySelector({selector!r})"
        x, y = self.value(f"{box}.getBoundingClientRect())")
        mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        wanted = self._loads + 1
        self._call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        while self._loads < wanted:
            self._read()


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [CHROMIUM, *options, "--remote-debugging-port=0", "--window-size=1200,900", "about:blank"]
    address = tmp_path / "profile" / "DevToolsActivePort"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            until = time.monotonic() + SECONDS
            while not (address.is_file() and len(lines := address.read_text().splitlines()) == 2):
                assert browser.poll() is None and time.monotonic() < until, "Chromium does not start"
                time.sleep(0.05)
            url = f"ws://127.0.0.1:{''.join(lines)}"
            with closing(websocket.create_connection(url, timeout=SECONDS, suppress_origin=True)) as socket:
                yield Tab(socket)
        finally:
            browser.terminate()


def test_a_question_is_typed_and_two_releases_are_compared(two_releases: list[Path], tmp_path: Path, tab: Tab) -> None:
    link = tmp_path / "in-use"
    link.symlink_to(two_releases[0])
    with running(link) as service:
        check_one_release(service, tab)
        before = service.service.shelf.current.name
        link.unlink()
        link.symlink_to(two_releases[1])
        assert service.service.shelf.look()
        tab.open(service.url)
        tab.type("[name=query]", "green fish")
        tab.value(f"document.querySelector('[name=beside]').value = {before!r}")
        tab.click("button")
        assert tab.texts("h2") == [f"release {name}" for name in (service.service.shelf.current.name, before)]
        sections = "[...document.querySelectorAll('section')]"
        left, right = tab.value(f"{sections}.map(each => each.getBoundingClientRect().toJSON())")
        assert left["top"] == right["top"] and left["right"] <= right["left"], "the columns are side by side"
        assert len(tab.texts("section:first-child li")) == len(tab.texts("section:last-child li")) == 10
    assert tab.errors == []


def check_one_release(service: Running, tab: Tab) -> None:
    tab.open(service.url)
    tab.type("[name=query]", "which red bird swims")
    tab.type("[name=top]", "24")
    tab.click("button")
    [answer] = service.search(query="which red bird swims", top=24)["answers"]
    assert tab.texts("li h3") == [f"{hit['rank']}. {hit['title']}" for hit in answer["hits"]]
    assert {mark.lower() for mark in tab.texts("mark")} == {"red", "bird", "birds", "swims"}
    assert f"{TRAP} swims" in tab.texts("li p"), "HTML in a passage is shown as text"
    assert tab.value("document.title").startswith("which red bird") and tab.texts("script, li b") == []
