"""Where the command line begins, as the script `tpcheck` and as `python -m tpcheck`, which
`torchrun -m` needs."""

from tpcheck.cli import early


def main() -> None:
    """Entry point: Ctrl-C is heard before the rest is imported."""
    early.hear()
    from tpcheck.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
