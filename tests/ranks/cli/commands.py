"""Runs commands in this process; the file of checks that they are given."""

from __future__ import annotations

import pytest

from tpcheck.cli.main import main

CHECKS = """
import torch, tpcheck
from tpcheck import Case, Check, Heads, Layout, Shard, Spec, specs
from fixtures.parallel.linear import RowLinear

def row(case, mesh):
    group = mesh["tp"].get_group()
    return RowLinear(case["in_features"], case["out_features"], group=group, bias=case["bias"])

class Unreduced(RowLinear):
    def sum_output(self, partial):
        return partial

def unreduced(case, mesh):
    group = mesh["tp"].get_group()
    return Unreduced(case["in_features"], case["out_features"], group=group, bias=case["bias"])

right = Check(specs.row_linear(), row)
wrong = Check(specs.row_linear(), unreduced)
budget_of_three = Check(
    specs.row_linear(), row, communication=True, overrides={"budget": lambda case: 3}
)

def plain(layout, cases):
    return Spec(
        name="plain",
        cases=cases,
        reference=lambda case: torch.nn.Linear(case["n"], case["n"]),
        inputs=lambda case, draw: {"x": draw("x", 2, case["n"])},
        layout=layout,
    )

def same(case, mesh):
    return torch.nn.Linear(case["n"], case["n"])

four = [Case(dims={"n": 4})]
missing = Check(plain(lambda case: Layout(params={"wieght": Shard(0)}), four), same)
unsplittable = Check(
    plain(lambda case: Layout(params={"weight": Shard(0, even=True)}), [Case(dims={"n": 5})]), same
)
no_such_dim = Check(
    plain(lambda case: Layout(params={"weight": Shard(3)}), [Case(dims={"n": 4})]), same
)
heads = Check(
    plain(
        lambda case: Layout(params={"weight": Heads(0, 6)}),
        [Case(dims={"n": 12}, mesh={"tp": 4})],
    ),
    same,
)
too_large = Check(plain(lambda case: Layout(), [Case(dims={"n": 4}, mesh={"tp": 8})]), same)
attention_case = Check(specs.attention(), same, overrides={"cases": [
    Case(dims=dict(batch=1, seq=1, hidden=4, heads=6, kv_heads=2, head_dim=2, bias=False,
                   norm="none", residual=False, qk_norm=False, rotary=False, causal=False),
         mesh={"tp": 4})]})
"""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a bad command; returns its one line."""
    capsys.readouterr()
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]
