"""A row-parallel linear that forgot its all-reduce: what the README shows a failure of."""

from torch import nn

import tpcheck
from tpcheck import specs


def build(case, mesh):
    degree = mesh["tp"].size()  # each rank multiplies its part; nobody adds the parts up
    return nn.Linear(case["in_features"] // degree, case["out_features"], bias=case["bias"])


row_without_all_reduce = tpcheck.Check(specs.row_linear(even=True), candidate=build)
