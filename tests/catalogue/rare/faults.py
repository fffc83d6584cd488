"""All twenty: ten that were written first, and ten of which few cases in a thousand, or fewer, show
each."""

from types import ModuleType

from tests.catalogue.rare import (
    activations,
    attention,
    experts,
    gates,
    gather,
    losses,
    norms,
    pairs,
    row_norms,
    scores,
    sequences,
    sharded,
    tokens,
)
from tpcheck import Check


def _checks(*modules: ModuleType) -> dict[str, Check]:
    return {
        name: check
        for module in modules
        for name, check in vars(module).items()
        if isinstance(check, Check)
    }


#: Those by which feedback is measured (`python -m tests.catalogue.rare`).
SELDOM = _checks(gates, pairs, row_norms, scores, sequences, tokens)
FAULTS = _checks(activations, attention, experts, gather, losses, norms, sharded) | SELDOM
