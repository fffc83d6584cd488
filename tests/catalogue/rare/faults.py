"""All ten."""

from tests.catalogue.rare import (
    activations,
    attention,
    experts,
    gather,
    losses,
    norms,
    sharded,
)
from tpcheck import Check

FAULTS: dict[str, Check] = {
    name: check
    for module in (activations, attention, experts, gather, losses, norms, sharded)
    for name, check in vars(module).items()
    if isinstance(check, Check)
}
