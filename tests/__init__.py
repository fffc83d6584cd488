"""tpcheck's own tests: `unit/` (no ranks), `ranks/`, `catalogue/`; see `tests/README.md`."""

from pathlib import Path

ROOT = Path(__file__).parent.parent  # the checkout
