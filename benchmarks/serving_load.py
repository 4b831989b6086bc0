"""Clients in a process of their own, with one connection each, which send the next request once they have an answer.

    python -m benchmarks.serving_load PORT CLIENTS SECONDS PATH < BODIES

Bodies are JSON lines. Prints what the clients saw as one line of JSON.
"""

from __future__ import annotations

import http.client
import json
import math
import sys
import threading
import time


def load(port: int, clients: int, seconds: float, path: str, bodies: list[bytes]) -> dict[str, object]:
    """Latencies in milliseconds of what was answered by the end, requests a second, and failures."""
    latencies: list[float] = []
    failures: list[int] = []
    start = threading.Barrier(clients + 1)
    ends = [0.0]

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.connect()
        start.wait()
        turn = number
        while (began := time.perf_counter()) < ends[0]:
            connection.request("POST", path, bodies[turn % len(bodies)], {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            latencies.append(1000 * (time.perf_counter() - began))
            if answer.status != 200:
                failures.append(answer.status)
            turn += clients
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    ends[0] = began + seconds
    start.wait()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    latencies.sort()
    return {
        "requests": len(latencies),
        "failures": len(failures),
        "per_second": len(latencies) / took,
        "p50": quantile(latencies, 0.5),
        "p99": quantile(latencies, 0.99),
    }


def quantile(ascending: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ascending[math.ceil(len(ascending) * share - 1e-9) - 1] if ascending else float("nan")


if __name__ == "__main__":
    port, clients, seconds, path = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    print(json.dumps(load(port, clients, seconds, path, sys.stdin.buffer.read().splitlines())))
