"""The release that answers, the previous ones, and the thread that replaces it with the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from stillhouse.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import Source, Unreachable

Opener = Callable[[Source], Release]


@dataclass(frozen=True)
class Refused:
    """A release that was refused, or a check that failed: why, and when (seconds since 1970)."""

    reason: str
    at: float


class Shelf:
    """`current` answers, and `kept` previous releases stay open, so that going back takes no loading.

    `opener` opens, checks and warms up what a source holds; `log` gets a line per change. A release replaces another
    within `placing`.
    """

    def __init__(
        self,
        source: Source,
        opener: Opener,
        keep: int,
        log: Callable[[str], None],
        placing: Callable[[Release], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._source, self._opener, self._keep, self._log = source, opener, keep, log
        self._placing = placing or (lambda release: nullcontext())
        state = source.state()
        self._open: tuple[Release, ...] = (opener(source),)
        self._seen = self._still(state)
        self._states: dict[str, Hashable] = {self.current.name: self._seen}
        self.refused: Refused | None = None
        self.unreachable: Refused | None = None
        self.looked = time.time()
        self._behind_since: float | None = None
        self.swaps = self.refusals = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def open_releases(self) -> tuple[Release, ...]:
        """The release in use and the kept ones, at one moment."""
        return self._open

    @property
    def current(self) -> Release:
        return self._open[0]

    @property
    def kept(self) -> tuple[Release, ...]:
        return self._open[1:]

    def find(self, name: str | None) -> Release | None:
        """The open release with a name; the current one for None."""
        releases = self.open_releases()
        return releases[0] if name is None else next((one for one in releases if one.name == name), None)

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
            reason = " ".join(str(error).split())
            if self.unreachable is None or self.unreachable.reason != reason:
                self._log(f"{self.current.name} keeps answering: {reason}")
            self.unreachable = Refused(reason, time.time())
            return False
        self.unreachable = None
        return changed

    def _look_at(self, state: Hashable) -> bool:
        if state == self._states.get(self.current.name):
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = time.time()
        if state == self._seen:
            return False
        before, known = self.current, self._open_in(state)
        if known is not None:
            if known is not self.current:
                self._put(known)
            self._seen, self.refused = state, None
            return known is not before
        try:
            release = self._opener(self._source)
        except Unreachable:
            raise
        except (InputError, OSError) as error:
            if self._source.state() != state:
                return False  # it is being replaced part by part: the next check finds it complete
            if isinstance(error, OSError):  # a problem of this machine, such as a full disk: the release may be fine
                raise Unreachable(f"the release that is there now cannot be opened: {error}") from None
            self._seen = state
            self.refusals += 1
            self.refused = Refused(" ".join(str(error).split()), time.time())
            self._log(f"a new release was refused, and {self.current.name} keeps answering: {self.refused.reason}")
            return False
        opened = self._states[release.name] = self._still(state)
        if release.name == self.current.name and _is_as_it_was(self.current):
            self.current.origin = release.origin
            self._behind_since = None
        else:
            self._put(release)
        self._seen, self.refused = opened, None
        return self.current is not before

    def _still(self, state: Hashable) -> Hashable:
        """`state`, if what was opened is certain to belong to it; otherwise something that equals no state.

        A link may change between the check of the state and the opening. Then the opened release is complete, but
        belongs to another state; the next check opens what is there.
        """
        try:
            return state if self._source.state() == state else object()
        except Unreachable:
            return object()

    def _open_in(self, state: Hashable) -> Release | None:
        """The release that was opened in this state of the source, if it is still open and unchanged."""
        for release in self._open:
            if self._states.get(release.name) == state:
                return release if _is_as_it_was(release) else None
        return None

    def _put(self, release: Release) -> None:
        before = self.current
        known = next((one for one in self.kept if one.name == release.name and _is_as_it_was(one)), release)
        others = [one for one in self._open if one.name != known.name]
        with self._placing(known):
            self._open = (known, *others[: self._keep])  # in one step: a release that stays open is always found
        still_open = {one.name for one in self._open}
        self._states = {name: state for name, state in self._states.items() if name in still_open}
        self._behind_since = None
        self.swaps += 1
        self._log(f"now serving release {known.name} instead of {before.name}")

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


def _is_as_it_was(release: Release) -> bool:
    """Whether an open release can answer: false if one of its files was overwritten in place."""
    try:
        release.refuse_changed()
    except InputError:
        return False
    return True
