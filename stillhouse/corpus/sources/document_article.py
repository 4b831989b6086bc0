"""A PDF, Word, PowerPoint, OpenDocument or EPUB file as an article, read by another process within bounds.

Such files may come from anywhere. If one exhausts memory or hangs, the process that reads it is ended and the file is
rejected; the next file gets a new process.
"""

import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

from stillhouse.corpus.sources.article import Article, Block
from stillhouse.corpus.sources.rows import Row
from stillhouse.corpus.sources.text_encoding import NotText

DOCUMENTS = (".docx", ".epub", ".odt", ".pdf", ".pptx")
SECONDS = 120.0
"""How long the reading of a file may take."""
READER = (sys.executable, "-m", "stillhouse.corpus.sources.document_reader")


class Documents:
    """Reads documents, one after the other, in a process that begins with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, article: Article) -> Iterator[Row]:
        """The rows of a document. Raises `NotText` with the reason if it is not read."""
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        process = self._process or subprocess.Popen(READER, stdin=pipe, stdout=pipe, stderr=nowhere, text=True)
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps(str(article.path)), file=process.stdin, flush=True)
        answer = process.stdout.readline() if select.select([process.stdout], [], [], SECONDS)[0] else "late"
        if not answer.endswith("\n"):
            status = self.close(kill=bool(answer))
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            late, ended = f"not read within {SECONDS:g} seconds", f"its reader ended with {how}, as without memory"
            raise NotText(f"{late if answer else ended}; save it anew, or as text")
        found = json.loads(answer)
        if found["reason"]:
            raise NotText(found["reason"])
        yield from article.rows([Block(*block) for block in found["blocks"]], article.path.stem, found["title"])

    def close(self, kill: bool = True) -> int:
        """Ends the process. Returns its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if kill:
            process.kill()
        process.communicate()
        return process.returncode
