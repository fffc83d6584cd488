"""How a tensor is placed is found out from what the ranks hold."""

from __future__ import annotations

from typing import Any

import torch

from tpcheck import Case
from tpcheck.bounds.spread import Spread
from tpcheck.diagnosis.fitting import fit
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Heads, Replicate
from tpcheck.protocol.problem import Target

FULL = torch.arange(48.0, dtype=torch.float64).reshape(2, 4, 6) + 1.0
TARGET = Target("border", "b", Replicate(), torch.float64, FULL, Spread(FULL * 1e-16, 9, 99))


def fitted(*held: torch.Tensor, params: dict[str, Any] | None = None) -> str | None:
    posed = Posed(Case(mesh={"tp": len(held)}), [], params or {}, {}, {})
    found = fit(TARGET, dict(enumerate(held)), posed)
    return None if found is None else found.label


def test_every_placement_is_recognised() -> None:
    assert fitted(FULL, FULL) == "Replicate()"
    assert fitted(*FULL.chunk(2, dim=1)) == "Shard(1)"
    assert fitted(FULL[..., :5], FULL[..., 5:]) == "Shard(2)"  # however uneven
    assert fitted(FULL - 7.0, torch.full_like(FULL, 7.0)) == "partial Replicate()"
    weight = {"k_proj.weight": Heads(0, heads=2)}
    quarters = [FULL[..., :3], FULL[..., :3], FULL[..., 3:], FULL[..., 3:]]
    assert fitted(*quarters, params=weight) == "Heads(dim=2, heads=2)"
    terms = [quarters[0] - 1.0, torch.ones(2, 4, 3), quarters[2], torch.zeros(2, 4, 3)]
    terms = [t.double() for t in terms]
    assert fitted(*terms, params=weight) == "partial Heads(dim=2, heads=2)"


def test_what_is_wrong_on_one_rank_fits_nothing() -> None:
    wrong = FULL.clone()
    wrong[1, 2, 3] += 1e-9
    assert fitted(FULL, wrong) is None
    assert fitted(*reversed(FULL.chunk(2, dim=1))) is None
    assert fitted(FULL[:, :2], FULL[:, :2]) is None
