"""What a rank holds fits, or does not, where some of it is not judged, infinite, or not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from tpcheck import Case
from tpcheck.bounds.spread import Spread
from tpcheck.diagnosis.facts import Facts, Local, largest
from tpcheck.diagnosis.hypotheses import rounding, tensor
from tpcheck.placement import Shard, take
from tpcheck.protocol.problem import Target
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Kind

FULL = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(4, 2)
CASE = Case(mesh={"tp": 2})


def local(full: Tensor, held: list[Tensor], open_at: tuple[int, int] | None = None) -> Local:
    """Rows 0 and 1 on rank 0, the others on rank 1."""
    sigma = torch.full_like(full, 1e-9)
    if open_at is not None:
        sigma[open_at] = torch.inf
    target = Target(Kind.OUTPUT, "y", Shard(0), torch.float64, full, Spread(sigma, 100, 100))

    def parts(of: Tensor) -> dict[int, Tensor]:
        return {r: take(of, target.entry, case=CASE, rank=r) for r in range(2)}

    return Local(target, CASE, [0, 1], dict(enumerate(held)), parts(full), parts(sigma))


def test_one_element_that_is_not_judged_does_not_have_all_fit() -> None:
    garbage = [torch.full((2, 2), 70.0, dtype=torch.float64)] * 2
    facts = cast(Facts, None)  # these ask for none
    for at in (None, (0, 0)):
        of = local(FULL, garbage, at)
        assert of.wrong() == [0, 1]
        assert not of.holds(FULL.flip(0), 0) and not of.holds(FULL * 2, 1)
        assert tensor.other_rank(facts, of) is tensor.sum_of_pieces(facts, of) is None
    struck = FULL.clone()
    struck[0, 0] = torch.nan
    assert local(FULL, [struck[:2], FULL[2:]], (0, 0)).wrong() == []
    assert local(FULL, [struck[:2], FULL[2:]]).wrong() == [0]


def test_an_infinity_that_is_expected_does_not_have_all_fit() -> None:
    full = FULL.clone()
    full[0, 1] = torch.inf
    assert local(full, [full[:2], full[2:]]).wrong() == []
    wrong = full[:2].clone()
    wrong[1] += 50.0
    assert local(full, [wrong, full[2:]]).wrong() == [0]


def test_what_is_no_number_where_the_reference_is_explains_nothing() -> None:
    """A hypothesis that comes to ∞ − ∞."""
    struck = torch.full_like(FULL[:2], torch.nan)
    of = local(FULL, [struck, FULL[2:]])
    assert not of.fits(struck, 0, expected=struck)
    assert not of.fits(struck / 0 * torch.inf, 0, expected=struck)
    of.expected[0] = struck
    assert of.fits(struck, 0, expected=struck)


def test_zeros_where_the_reference_has_no_number_are_not_a_cause() -> None:
    posed = SimpleNamespace(problems=[SimpleNamespace(inputs=[{"x": FULL}])])
    facts = cast(Facts, SimpleNamespace(posed=posed))
    of = local(FULL, [torch.zeros_like(FULL[:2])] * 2)
    assert tensor.zero(facts, of) is not None
    of.expected[0] = FULL[:2] * torch.nan
    assert tensor.zero(facts, of) is None


def test_the_largest_is_one_that_is_finite() -> None:
    assert largest(torch.tensor([1.0, torch.inf, torch.nan, 3.0])) == 3.0
    assert largest(torch.tensor([torch.inf])) == largest(torch.zeros(0)) == 0.0


def test_a_rank_that_holds_nothing_is_off_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [FULL[:2], FULL[:0]]
    of = local(FULL, held)
    of.expected[1] = FULL[:0]
    monkeypatch.setattr(rounding, "gather", lambda facts, mismatch: of)
    facts, mismatch = cast(Facts, None), Mismatch("y", Kind.OUTPUT, 0)
    assert rounding._error(facts, mismatch) == 0.0
    of.actual[0] = torch.full_like(FULL[:2], torch.nan)
    assert rounding._error(facts, mismatch) == torch.inf
