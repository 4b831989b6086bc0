"""The release that answers, the previous ones, and the thread that replaces it with the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime

from stillhouse.core.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import Source, Unreachable

Opener = Callable[[Source], Release]


class OpenReleases:
    """`current` answers, and `kept` previous releases stay open, so that going back takes no loading.

    `opener` opens, checks and warms up what a source holds; `log` gets a line per change. `refused` and `unreachable`
    say why the last release was refused or the last check failed, and when.
    """

    def __init__(self, source: Source, opener: Opener, keep: int, log: Callable[[str], None]) -> None:
        self._source, self._opener, self._keep, self._log = source, opener, keep, log
        state = source.state()
        self._open: tuple[Release, ...] = (opener(source),)
        self._seen = self._still(state)
        self._states: dict[str, Hashable] = {self.current.name: self._seen}
        self.refused: dict[str, str] | None = None
        self.unreachable: dict[str, str] | None = None
        self.looked = time.time()
        self._behind_since: float | None = None
        self.swaps = self.refusals = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def current(self) -> Release:
        return self._open[0]

    @property
    def kept(self) -> tuple[Release, ...]:
        return self._open[1:]

    def find(self, name: str | None) -> Release | None:
        """The open release with a name; the current one for None."""
        releases = self._open
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
            found = _said(error)
            if self.unreachable is None or self.unreachable["reason"] != found["reason"]:
                self._log(f"{self.current.name} keeps answering: {found['reason']}")
            self.unreachable = found
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
        release = self._open_in(state)
        if release is None:
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
                self._log(
                    f"a new release was refused, and {self.current.name} keeps answering: {self.refused['reason']}"
                )
                return False
            self._states[release.name] = self._still(state)
        return self._put(release)

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
        """The release that was opened in this state of the source, if it is still open and not overwritten since."""
        for release in self._open:
            if self._states[release.name] == state and not release.overwritten():
                return release
        return None

    def _put(self, release: Release) -> bool:
        """Lets a release answer, and returns whether something else answered before."""
        before = self.current
        others = [one for one in self._open if one.name != release.name]
        self._open = (release, *others[: self._keep])  # in one step: a release that stays open is always found
        self._states = {one.name: self._states[one.name] for one in self._open}
        self._seen, self.refused, self._behind_since = self._states[release.name], None, None
        if release.name != before.name:
            self.swaps += 1
            self._log(f"now serving release {release.name} instead of {before.name}")
        return release is not before

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
