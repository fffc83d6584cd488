"""Where the command line begins, as the script `tpcheck` and as `python -m tpcheck`, which
`torchrun -m` needs."""

import os
import sys

from tpcheck.cli import early


def main() -> None:
    """Entry point: what ends a run from outside is heard before the rest is imported."""
    early.hear()
    # whether there is a GPU is asked of its driver: processes that are forked after CUDA was asked,
    # as those of `--jobs` are, can't use it, and torch's optimizers do
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if os.environ.get("TPCHECK_SANITIZER"):
        _sanitized()
    from tpcheck.cli.main import main as run

    run()


def _sanitized() -> None:
    """Does all of it below the tool that is asked for, unless it is there already."""
    from tpcheck.errors import TROUBLE
    from tpcheck.protocol import sanitized

    if (tool := sanitized.asked()) is None:
        return
    if (reason := sanitized.why_not(tool)) is not None:
        print(f"tpcheck: {reason}", file=sys.stderr)
        sys.exit(TROUBLE)
    sys.exit(sanitized.run_again(tool, sys.argv[1:]))


if __name__ == "__main__":
    main()
