"""``python -m sbd VERB``: one step of an experiment."""

import sys

from sbd.cli import main

sys.exit(main())
