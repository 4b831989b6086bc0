"""The user's own git, with its keys, hosts and credential helpers: clone, read tags, commit, push all or nothing.

A commit is made in a separate index and pushed by its hash. The caller's working tree, index and branches stay
unchanged until it is pushed, and a push that is rejected or cut off leaves nothing to clean up.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact

REMOTE = "origin"
NOBODY = {"NAME": "Stillhouse", "EMAIL": "stillhouse@localhost"}
"""The committer if git has no name configured, as in a pod."""
TAKEN = (
    "already exists",
    "fetch first",
    "non-fast-forward",
    "stale info",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old",
)
"""Git's messages if another push was faster; only then is a retry useful."""


class PushTaken(Exception):
    """Another push came first, so this one's base is no longer the newest."""


@dataclass(frozen=True)
class Git:
    """A git work tree, or a folder in one. A command fails after `seconds`; None = no time limit."""

    folder: Path
    seconds: float | None = None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The work tree of a folder. Raises `InputError`, with the remedy, without a work tree or a remote."""
        git = cls(folder)
        try:
            git("rev-parse", "--show-toplevel")
        except GitFailed as error:
            raise InputError(
                f"{folder} is not in a git work tree ({error.first}); releases need one: run `git init "
                "--initial-branch main`, commit, and run `git remote add origin URL`"
            ) from None
        if REMOTE not in git("remote").split():
            raise InputError(f"the git repository of {folder} has no remote; add one: `git remote add {REMOTE} URL`")
        return git

    def __call__(self, *words: str, given: str | None = None, more: Mapping[str, str] | None = None) -> str:
        """Returns the output of a git command. Raises `GitFailed` with what git printed."""
        environment = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"} | dict(more or {})
        settings: Any = {"cwd": self.folder, "env": environment, "timeout": self.seconds, "errors": "replace"}
        try:
            done = subprocess.run(["git", *words], input=given, capture_output=True, **settings)
        except (FileNotFoundError, NotADirectoryError):
            why = "git is not installed here" if self.folder.is_dir() else f"{self.folder} is not a folder"
            raise InputError(f"{why}, and repositories are read with git") from None
        except subprocess.TimeoutExpired:
            raise GitFailed(f"no answer in {self.seconds:g} s") from None
        if done.returncode != 0:
            raise GitFailed(redact(done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"))
        return done.stdout.strip()

    def if_it_succeeds(self, *words: str) -> str:
        """The output of a git command, or "" if it fails."""
        try:
            return self(*words)
        except GitFailed:
            return ""

    @property
    def prefix(self) -> str:
        """The folder's path in the repository: "", or a path that ends with a slash."""
        return self("rev-parse", "--show-prefix")

    def fetch(self, tags: str) -> None:
        """Fetches the remote's branches, and its tags that begin with `tags`.

        Raises `InputError` if the remote cannot be reached.
        """
        try:
            branches = f"+refs/heads/*:refs/remotes/{REMOTE}/*"
            self("fetch", "--quiet", "--no-tags", REMOTE, branches, f"+refs/tags/{tags}*:refs/tags/{tags}*")
        except GitFailed as error:
            raise InputError(
                f"cannot read the git remote {REMOTE} of {self.folder}: {error.first}. Is its address right, and may "
                "this machine read it (key, token; in a pod, the secret that git_secret names)?"
            ) from None

    def tags(self, pattern: str) -> dict[str, str]:
        """The matching annotated tags, name -> full message, in no particular order."""
        layout = "--format=%(objecttype) %(refname:strip=2)%00%(contents)%01"
        text = self("for-each-ref", f"refs/tags/{pattern}", layout)
        found = {}
        for entry in text.split("\x01"):
            head, _, message = entry.strip("\n").partition("\x00")
            kind, _, name = head.partition(" ")
            if kind == "tag":
                found[name] = message.strip()
        return found

    def commit_of(self, revision: str) -> str:
        """The commit of a revision, or "" if it does not exist."""
        return self.if_it_succeeds("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")

    def read(self, revision: str, path: str) -> str:
        """The text of one of the folder's files at a revision."""
        return self("show", f"{revision}:{self.prefix}{path}")

    def commit(self, parent: str, files: Iterable[str], message: str, contents: Mapping[str, str] | None = None) -> str:
        """Commits the current version of some of the folder's files on top of `parent` ("" = none); returns the hash.

        `contents` are the texts of files that are committed but not written to the folder. A file that does not exist
        is removed in the commit. No branch moves.
        """
        contents = contents or {}
        top = Path(self("rev-parse", "--show-toplevel"))
        prefix = self.prefix
        with tempfile.TemporaryDirectory() as place:
            index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
            at_top = Git(top)
            if parent:
                at_top("read-tree", parent, more=index)
            entries = []
            for name in files:
                path, source = f"{prefix}{name}", self.folder / name
                if name in contents:
                    source = Path(place) / "content"
                    source.write_text(contents[name], encoding="utf-8")
                if source.is_file():
                    blob = self("hash-object", "-w", "--path", name, "--", str(source.absolute()))
                    entries.append(f"100644 {blob}\t{path}\n")
                else:
                    entries.append(f"0 {'0' * 40}\t{path}\n")
            at_top("update-index", "--index-info", given="".join(entries), more=index)
            tree = at_top("write-tree", more=index)
        if parent and tree == self("rev-parse", f"{parent}^{{tree}}"):
            return parent
        parents = ["-p", parent] if parent else []
        return self("commit-tree", tree, *parents, "-F", "-", given=message, more=self._people())

    def tag_object(self, name: str, commit: str, message: str) -> str:
        """Creates an annotated tag object that no ref points to yet; returns its hash."""
        tagger = self("var", "GIT_COMMITTER_IDENT", more=self._people())
        content = f"object {commit}\ntype commit\ntag {name}\ntagger {tagger}\n\n{message}\n"
        return self("mktag", given=content)

    def push(self, refs: Mapping[str, str]) -> None:
        """Sets refs of the remote to hashes, all or none. Never replaces a tag or rewinds a branch.

        Raises `PushTaken` if another push came first, and `InputError` if the remote cannot be written.
        """
        try:
            self("push", "--quiet", "--atomic", REMOTE, *(f"{value}:{name}" for name, value in refs.items()))
        except GitFailed as error:
            if any(reason in str(error) for reason in TAKEN):
                raise PushTaken(error.last) from None
            raise InputError(
                f"cannot push to the git remote {REMOTE} of {self.folder}: {error.last}. May this machine write there "
                "(key, token, protected branch; in a pod, the secret that git_secret names)? Nothing was released; you "
                "can repeat the command"
            ) from None

    def _people(self) -> dict[str, str]:
        """Environment variables with names for commits where git has none."""
        return {
            f"GIT_{role}_{part}": NOBODY[part]
            for role in ("AUTHOR", "COMMITTER")
            for part, key in (("NAME", "user.name"), ("EMAIL", "user.email"))
            if not os.environ.get(f"GIT_{role}_{part}") and not self.if_it_succeeds("config", "--get", key)
        }


class GitFailed(Exception):
    """A git command failed; the message is what it printed."""

    @property
    def first(self) -> str:
        return str(self).splitlines()[0]

    @property
    def last(self) -> str:
        return str(self).splitlines()[-1]


def clone(repo: str, target: Path, *flags: str) -> None:
    """Clones `repo` to `target`. Raises `InputError` with what git and ssh say."""
    try:
        Git(Path())("clone", "--quiet", *flags, "--", repo, str(target))
    except GitFailed as error:
        # What ssh says comes before git's own message; its last line is the reason.
        said, fatal, rest = str(error).partition("fatal:")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        why = lines[-1] if lines else f"{fatal}{rest}".split("\n")[0]
        raise InputError(
            f"cannot read the repository {repo} ({why.rstrip('.')}). Is its address right, does the branch exist, and "
            "can this machine read it (key, known host, token; in a pod, the secret that git_secret names)?"
        ) from None
