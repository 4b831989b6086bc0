"""Fetches folders in a separate process, which a service starts: `python -m` this module.

DVC uses processor time and memory and changes the current folder, none of which may affect the service's clients. The
standard input is JSON: `{"repository", "commit", "parts": {path in the repository: target folder}}`, or
`{"storage": URI, "parts": {name below it: target folder}}`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stillhouse.errors import InputError, access_errors


def main() -> int:
    """Exit code 0, or `InputError`'s, with its message on standard error."""
    asked = json.load(sys.stdin)
    try:
        with access_errors():
            if "storage" in asked:
                from stillhouse.remote.storage import StoredFolder

                storage = StoredFolder(asked["storage"])
                for name, target in asked["parts"].items():
                    storage.fetch(name, Path(target))
            else:
                from stillhouse.remote.dvc_source import fetch

                for path, target in asked["parts"].items():
                    fetch(asked["repository"], asked["commit"], path, Path(target))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
