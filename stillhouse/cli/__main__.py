"""`python -m stillhouse.cli`."""

import sys

from stillhouse.cli import main

sys.exit(main())
