"""`python -m tpcheck`, as `torchrun -m` needs it."""

from tpcheck.cli.main import main

main()
