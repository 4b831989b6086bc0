"""A fake Pushgateway."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, str], float]


class Gateway:
    """Accepts pushes and deletions like a Pushgateway, and records them as (method, path, samples)."""

    def __init__(self, status: int = 202) -> None:
        self.pushes: list[tuple[str, str, Samples]] = []
        pushes = self.pushes

        class Handler(BaseHTTPRequestHandler):
            def take(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                samples: Samples = {}
                for family in text_string_to_metric_families(text):
                    for sample in family.samples:
                        own = {name: value for name, value in sample.labels.items() if name != "run"}
                        samples[sample.name, next(iter(own.values()), "")] = sample.value
                pushes.append((self.command, self.path, samples))
                self.send_response(status)
                self.end_headers()

            do_PUT = do_POST = take

            def do_DELETE(self) -> None:
                pushes.append((self.command, self.path, {}))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
