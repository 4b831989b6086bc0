"""The release that answers, and the thread that replaces it with the next."""

import threading
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime

from stillhouse.core.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import Source, Unreachable

Opener = Callable[[Source], Release]


class OpenReleases:
    """`current` answers. `opener` opens and warms up what a source holds; `log` gets a line per change.

    `refused` and `unreachable` say why the last release was refused or the last check failed, and when.
    """

    def __init__(self, source: Source, opener: Opener, log: Callable[[str], None]) -> None:
        self._source, self._opener, self._log = source, opener, log
        state = source.state()
        self.current = opener(source)
        self._served = self._seen = self._still(state)
        self.refused: dict[str, str] | None = None
        self.unreachable: dict[str, str] | None = None
        self.looked = time.time()
        self._behind_since: float | None = None
        self.swaps = self.refusals = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def behind(self) -> float:
        """For how many seconds the source has held another release than the current one; 0 if it has not."""
        since = self._behind_since
        return 0.0 if since is None else time.time() - since

    def look(self) -> bool:
        """Opens what the source holds if it changed, and returns whether another release answers now.

        A release that cannot be opened is refused, and the current one keeps answering. If the source does not answer,
        or cannot provide the release now, the next check tries again.
        """
        try:
            state = self._source.state()
            self.looked = time.time()
            changed = self._look_at(state)
        except InputError as error:
            found = _said(error)
            if self.unreachable is None or self.unreachable["reason"] != found["reason"]:
                self._log(f"{self.current.name} keeps answering: {found['reason']}")
            self.unreachable = found
            return False
        self.unreachable = None
        return changed

    def _look_at(self, state: Hashable) -> bool:
        if state == self._served:
            self._seen, self.refused, self._behind_since = state, None, None
            return False
        if self._behind_since is None:
            self._behind_since = time.time()
        if state == self._seen:
            return False
        try:
            release = self._opener(self._source)
        except Unreachable:
            raise
        except (InputError, OSError) as error:
            if self._source.state() != state:
                return False  # it is being replaced part by part: the next check finds it complete
            if isinstance(error, OSError):  # a problem of this machine, such as a full disk
                raise Unreachable(f"the release that is there now cannot be opened: {error}") from None
            self._seen, self.refused = state, _said(error)
            self.refusals += 1
            self._log(f"a new release was refused, and {self.current.name} keeps answering: {self.refused['reason']}")
            return False
        before, self.current = self.current, release
        self._served = self._seen = self._still(state)
        self.refused = self._behind_since = None
        if release.name != before.name:
            self.swaps += 1
            self._log(f"now serving release {release.name} instead of {before.name}")
        return True

    def _still(self, state: Hashable) -> Hashable:
        """`state`, if what was opened is certain to belong to it; otherwise something that equals no state.

        The folder may change between the check of the state and the opening; the next check opens what is there.
        """
        try:
            return state if self._source.state() == state else object()
        except Unreachable:
            return object()

    def watch(self, seconds: float) -> None:
        """Checks at intervals, on a separate thread, until `end`."""
        self._thread = threading.Thread(target=self._run, args=(seconds,), name="releases", daemon=True)
        self._thread.start()

    def _run(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            try:
                self.look()
            except Exception as error:  # the thread must survive unexpected errors
                self._log(f"the check for a new release failed, and {self.current.name} keeps answering: {error}")

    def end(self) -> None:
        self._over.set()
        self._source.end()
        if self._thread:
            self._thread.join(timeout=5)


def _said(error: Exception) -> dict[str, str]:
    """What went wrong and when, for `/info`."""
    return {"reason": " ".join(str(error).split()), "at": datetime.now(UTC).isoformat(timespec="seconds")}
