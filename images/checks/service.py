"""Waits until a service answers, and asks it a question.

python service.py ADDRESS
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request

SECONDS = 120


def check(address: str) -> None:
    until = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/ready", timeout=5).close()
            break
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until, f"{address} does not answer"
            time.sleep(0.2)
    body = json.dumps({"query": "why do ships carry clocks", "top": 3}).encode()
    request = urllib.request.Request(f"{address}/search", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    [asked] = found["answers"]
    print(found["release"], [hit["passage_id"] for hit in asked["hits"]])
    assert len(asked["hits"]) == 3


if __name__ == "__main__":
    check(sys.argv[1])
