"""`python -m stillhouse.cli`."""

from __future__ import annotations

import sys

from stillhouse.cli import main

sys.exit(main())
