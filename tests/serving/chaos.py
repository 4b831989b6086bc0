"""Clients ask without a pause while releases are swapped, rolled back, damaged, half-copied and the process is killed.

    python tests/serving/chaos.py --times 10000        10,000 changes, or as many as --minutes allow; prints the result
    TMPDIR=/dev/shm python tests/serving/chaos.py --times 10000 --pause 0.05        more changes in the same time

Every answer is compared with the library's offline result for the release that the answer names. A request may fail
only if the process was killed during the request, or was not running. `test_chaos.py` does this for some seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

QUERIES = ("where does the red bird one sing", "which tree grows", "green fish in the tree")
TOP, CLIENTS, LONGEST = 6, 3, 120.0
"""Passages per search, number of clients, and the longest wait for an expected change, in seconds."""
KINDS = {"swap": 12, "back": 4, "damaged": 2, "half": 2}
"""Changes of the folder and their relative frequencies."""


class Chaos:
    """One service for `work/in-use`, a link to copies of `releases`, and what its clients observe."""

    def __init__(
        self, releases: Sequence[Path], expected: dict[str, Any], work: Path, seed: int, pause: float = 0
    ) -> None:
        self.releases, self.expected, self.work = releases, expected, work
        self.names = list(expected)
        self.random, self.pause = random.Random(seed), pause
        self.link = work / "in-use"
        self.done: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.excused = 0
        self._over = threading.Event()
        self._counting = threading.Lock()
        self._kills = 0
        self._up = threading.Event()
        self._made = 0
        self._folders: list[tuple[Path, int]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._looking = self._client()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, times: int, kills: int, seconds: float) -> None:
        """Make `times` changes, or as many as `seconds` allow, with `kills` spread evenly among them."""
        end = time.monotonic() + seconds
        self._use(self._copy(0), 0)
        with ExitStack() as held:
            held.callback(self._stop)
            self._start()
            threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
            held.callback(lambda: [thread.join() for thread in threads])
            held.callback(self._over.set)
            for thread in threads:
                thread.start()
            every = times // (kills + 1) if kills else times + 1
            for number in range(1, times + 1):
                if time.monotonic() > end or self.wrong:
                    break
                if number % every == 0 and self.done["kill"] < kills:
                    self._kill()
                else:
                    kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
                    getattr(self, f"_{kind}")()
                    self.done[kind] += 1

    def _client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=LONGEST, trust_env=False)

    # Changes of the folder.

    def _copy(self, which: int) -> Path:
        self._made += 1
        folder = self.work / f"copy{self._made}"
        shutil.copytree(self.releases[which], folder)
        return folder

    def _use(self, folder: Path, which: int) -> None:
        new = self.link.with_name(".new")
        new.symlink_to(folder)
        new.replace(self.link)
        self._folders = [each for each in self._folders if each[0] != folder] + [(folder, which)]
        while len(self._folders) > 3:
            shutil.rmtree(self._folders.pop(0)[0])

    def _swap(self) -> None:
        which = 1 - self._folders[-1][1]
        self._use(self._copy(which), which)
        self._wait(lambda about: about["release"] == self.names[which])

    def _back(self) -> None:
        now = self._folders[-1][1]
        before = next((each for each in reversed(self._folders) if each[1] != now), None)
        if before is None:
            self._swap()
            return
        self._use(*before)
        self._wait(lambda about: about["release"] == self.names[before[1]])

    def _damaged(self) -> None:
        """Another release with some bytes flipped: it must be refused."""
        bad = self._copy(1 - self._folders[-1][1])
        path = self.random.choice([each for each in sorted(bad.rglob("*")) if each.is_file() and each.stat().st_size])
        data = bytearray(path.read_bytes())
        for _ in range(3):
            data[self.random.randrange(len(data))] ^= self.random.randrange(1, 256)
        path.write_bytes(data)
        good = self._folders[-1]
        self._use(bad, -1)
        self._wait(lambda about: about["refused"] is not None)
        self._use(*good)
        self._folders = [each for each in self._folders if each[0] != bad]
        shutil.rmtree(bad)
        self._wait(lambda about: about["refused"] is None)

    def _half(self) -> None:
        """The folder is copied while it is already in use."""
        which = 1 - self._folders[-1][1]
        source, self._made = self.releases[which], self._made + 1
        folder = self.work / f"copy{self._made}"
        folder.mkdir()
        self._use(folder, which)
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        self.random.shuffle(files)
        for path in files:
            into = folder / path.relative_to(source)
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into)
            time.sleep(0.002)
        os.utime(folder)  # the source checks the folder's own modification time
        self._wait(lambda about: about["release"] == self.names[which])

    def _wait(self, holds: Callable[[Any], bool]) -> None:
        end = time.monotonic() + LONGEST
        about: Any = None
        while time.monotonic() < end:
            about = self._looking.get("/info").json()
            if holds(about):
                return
            time.sleep(0.01)
        self.wrong.append(f"waited in vain: {about['release']}, refused: {about['refused']}")

    # The process.

    def _start(self) -> None:
        command = [sys.executable, "-m", "stillhouse.cli", "serve", str(self.link), "--port", str(self.port)]
        command += ["--precision", "fp32"]  # the precision of the offline search
        command += ["--watch", "0.01", "--deadline", "120", "--keep", "1"]
        own = {"STILLHOUSE_WORK": str(self.work / "work"), "STILLHOUSE_QUIET": "1", "OMP_NUM_THREADS": "1"}
        with (self.work / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=os.environ | own, stderr=log)
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            assert self._process.poll() is None, (self.work / "log").read_text()[-2000:]
            try:
                if self._looking.get("/ready").status_code == 200:
                    self._up.set()
                    return
            except httpx2.HTTPError:
                time.sleep(0.02)
        raise AssertionError("it did not start")

    def _kill(self) -> None:
        assert self._process
        self._up.clear()
        with self._counting:
            self._kills += 1
        self._process.kill()
        self._process.wait()
        self.done["kill"] += 1
        self._start()

    def _stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    # The clients.

    def _ask(self, first: int) -> None:
        number = first
        client = self._client()
        while not self._over.is_set():
            if not self._up.wait(0.1):
                continue
            kills, number, query = self._kills, number + 1, QUERIES[number % len(QUERIES)]
            try:
                if number % 4:
                    answer = client.post("/search", json={"query": query, "top": TOP})
                else:
                    answer = client.post("/embed", json={"inputs": query})
            except httpx2.HTTPError as error:
                client.close()
                client = self._client()
                if kills != self._kills or not self._up.is_set():
                    self.excused += 1
                else:
                    self.wrong.append(f"a request failed: {error!r}")
                continue
            self._check(query, answer)
            time.sleep(self.pause)
        client.close()

    def _check(self, query: str, answer: httpx2.Response) -> None:
        name = answer.headers.get("X-Stillhouse-Release", "")
        if answer.status_code != 200 or name not in self.expected:
            self.wrong.append(f"{answer.status_code} of {name!r}: {answer.text[:200]}")
            return
        hits, vector = self.expected[name][query]
        found = answer.json()
        if isinstance(found, list):
            right = np.allclose(found[0], vector, atol=1e-5)
        else:
            each = found["answers"][0]["hits"]
            right = found["release"] == name and np.allclose([hit["score"] for hit in each], hits[1], atol=1e-4)
            right = right and [(hit["passage_id"], hit["title"], hit["text"]) for hit in each] == hits[0]
        self.answers[name] += 1
        if not right:
            self.wrong.append(f"{name} answers {query!r} with what it does not hold: {answer.text[:200]}")


def offline(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the release's name, and each query's hits, scores and vector from the library's own search."""
    import torch
    from serving_releases import open_release, searcher_of

    from stillhouse.models.encoder import BiEncoder
    from stillhouse.serving.source import FolderSource

    search, encoder = searcher_of(folder), BiEncoder.load(folder / "retriever").eval()
    expected = {}
    for query in QUERIES:
        found = search.search(query, TOP)
        vector = encoder(*encoder.queries([query]).batch([0], torch.device("cpu")), "query")[0].detach().numpy()
        shown = [(hit.passage_id, hit.title, hit.text) for hit in found]
        expected[query] = ((shown, [hit.score for hit in found]), vector)
    return open_release(FolderSource(folder)).name, expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10_000, help="changes of the folder and kills (default: 10000)")
    parser.add_argument("--kills", type=int, default=-1, help="kills among them (default: one in 200)")
    parser.add_argument("--minutes", type=float, default=60, help="then it ends (default: 60)")
    parser.add_argument("--pause", type=float, default=0, help="seconds that a client waits between questions")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # pytest makes the releases with the tests' own fixture.
        chosen = (arguments.times, arguments.kills, 60 * arguments.minutes, arguments.seed, arguments.pause)
        own = os.environ | {"STILLHOUSE_CHAOS": " ".join(map(str, chosen))}
        test = Path(__file__).with_name("test_chaos.py")
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"--basetemp={folder}/t", test]
        raise SystemExit(subprocess.run(command, env=own).returncode)


if __name__ == "__main__":
    main()
