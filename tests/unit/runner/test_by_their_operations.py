"""Single numbers outside of the least bounds are held against what the operation rounds first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.unit.runner.test_second_look import NONE, suspected
from tpcheck.bounds.floor import KNOWN
from tpcheck.bounds.spread import Spread
from tpcheck.evidence import Absent, Values
from tpcheck.oracle.effort import FLOOR, SCREEN, Effort
from tpcheck.oracle.pose import Posed
from tpcheck.protocol.returned import file_of
from tpcheck.runner.second_look import screened
from tpcheck.tensors.names import Key
from tpcheck.vocabulary import Kind

SINGLE = Values(wrong=1, of=2)


def looked(
    folder: Path,
    variance: Tensor | None,
    detail: Values | Absent = SINGLE,
    off: float = 5.0,
    value: Tensor = NONE,
) -> tuple[list[Effort], bool]:
    """The efforts that were asked for over a number that is so far off, the first one of a tensor,
    and whether it is right."""
    asked: list[Effort] = []
    posed, report = suspected("float32", integer=False, error=off, bound=1.0)
    (target,) = posed.problems[0].targets
    target = replace(target, value=value, spread=Spread(value, KNOWN, KNOWN))
    posed = replace(posed, problems=[replace(posed.problems[0], targets=[target])])
    report.mismatches = [replace(report.mismatches[0], detail=detail)]
    actual = value.float().contiguous()
    actual.view(-1)[0] = off
    save_file({str(Key(Kind.OUTPUT, "y")): actual}, file_of(folder, report.rank))

    def closely(effort: Effort) -> Posed:
        asked.append(effort)
        return replace(posed, effort=effort)

    def rounded(d: int, kind: Kind, name: str, at: Tensor) -> Tensor | None:
        assert (d, kind, name, at.tolist()) == (0, Kind.OUTPUT, "y", [0])
        return None if variance is None else variance[at]

    first = replace(posed, effort=FLOOR, closely=closely, rounded=rounded)
    found = screened(first, [report], folder)
    assert found.effort is (SCREEN if asked else FLOOR)
    return asked, not report.mismatches


def test_a_number_that_its_operation_may_round_so_far_is_right(tmp_path: Path) -> None:
    assert looked(tmp_path, NONE + 4.0) == ([], True)


def test_a_tensor_that_is_a_view_the_other_way_round_is_one_too(tmp_path: Path) -> None:
    value = torch.zeros(2, 3, dtype=torch.float64).mT
    assert not value.is_contiguous()
    assert looked(tmp_path, torch.full((6,), 4.0), value=value) == ([], True)


@pytest.mark.parametrize(
    ("variance", "detail", "off"),
    [
        (NONE + 4.0, SINGLE, 500.0),  # farther off
        (NONE + torch.tensor([0.0, 4.0]), SINGLE, 5.0),  # another number's
        (None, SINGLE, 5.0),
        (NONE + 4.0, replace(SINGLE, norm_error=2.0, norm_bound=1.0), 5.0),
        (NONE + 4.0, replace(SINGLE, gain_error=2.0, gain_bound=1.0), 5.0),
        (NONE + 4.0, replace(SINGLE, dtype="float64", expected_dtype="float32"), 5.0),
        (NONE + 4.0, replace(SINGLE, nan=1), 5.0),
        (NONE + 4.0, Absent(), 5.0),
    ],
)
def test_all_else_is_judged_under_noisy_runs(
    tmp_path: Path, variance: Tensor | None, detail: Values | Absent, off: float
) -> None:
    asked, right = looked(tmp_path, variance, detail, off)
    assert asked == [SCREEN] and not right
