"""The kinds of faults, one module per family; `KINDS` of `fault.py` has them all."""

from tests.catalogue.torture.faults import (  # noqa: F401 - each registers its kinds
    collectives,
    deaths,
    files,
    hangs,
    hooks,
    interpreter,
    later,
    limits,
    modes,
    neighbours,
    operators,
    outputs,
    patches,
    processes,
    raising,
    shared,
    sockets,
    surroundings,
    tampering,
)
