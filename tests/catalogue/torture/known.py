"""The candidates whose verdicts are known: what follows a fault."""

from __future__ import annotations

import torch
from torch import Tensor

from fixtures.parallel.linear import ColumnLinear, RowLinear
from tests.candidates import linear
from tpcheck import Check, specs


class Unwritten(RowLinear):
    """Adds memory that it has not written. A new page is zero: only the poison shows it."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + torch.empty(1 << 18, dtype=y.dtype)[:1]


class WithoutItsReduction(RowLinear):
    """Returns its part of the sum."""

    def sum_output(self, partial: Tensor) -> Tensor:
        return partial


class DropsAGradient(RowLinear):
    """Its weight gets no gradient."""

    def multiply(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.detach())


class Averages(RowLinear):
    """The mean over ranks in place of the sum."""

    def sum_output(self, partial: Tensor) -> Tensor:
        return super().sum_output(partial) / self.degree


class SlightlyOff(RowLinear):
    """Off by a millionth."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + 1e-6)


class WithoutItsReductionInBackward(ColumnLinear):
    """Its input's gradient is only this rank's part."""

    def copy_input(self, x: Tensor) -> Tensor:
        return x


def _row(cls: type) -> Check:
    return Check(specs.row_linear(), linear(cls), name=cls.__name__)


def _column(cls: type) -> Check:
    return Check(specs.column_linear(), linear(cls), name=cls.__name__)


RIGHT = {"RowLinear": _row(RowLinear), "ColumnLinear": _column(ColumnLinear)}
WRONG = {
    "Unwritten": _row(Unwritten),
    "WithoutItsReduction": _row(WithoutItsReduction),
    "DropsAGradient": _row(DropsAGradient),
    "Averages": _row(Averages),
    "SlightlyOff": _row(SlightlyOff),
    "WithoutItsReductionInBackward": _column(WithoutItsReductionInBackward),
}
FOLLOWERS = RIGHT | WRONG
#: Of the second case of a check whose first case leaves state behind.
WITHIN: dict[str, type[RowLinear]] = {
    "RowLinear": RowLinear,
    "Unwritten": Unwritten,
    "WithoutItsReduction": WithoutItsReduction,
    "DropsAGradient": DropsAGradient,
    "SlightlyOff": SlightlyOff,
}
