"""Hypotheses about the rows of one wrong tensor: rows in another order, rows of other tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.causes.rows import RowsOfTokens, RowsPermuted
from tpcheck.diagnosis.facts import Facts, Local
from tpcheck.verdict import Diagnosis
from tpcheck.vocabulary import Code, Kind

#: Rows of a dim that are compared one by one with all others: more take longer than they tell.
MOST_ROWS = 256
#: By which rows are multiplied that are no rows of the reference: as many of these as are found
#: there, too, would be by chance, where bounds are wide and rows are short.
_FACTORS = [sign * (0.505 + k / 64) for k in range(64) for sign in (1.0, -1.0)]
MOST_ROWS_TRIED = 16
#: How probable it may be that all are found by chance.
CHANCE = 1e-2


def permuted(facts: Facts, local: Local) -> Diagnosis | None:
    """Rows along some dim are rows of the reference, on this rank or another, in another order."""
    for rank in local.wrong():
        for dim in range(local.target.value.ndim):
            rows = _row_map(local, rank, dim)
            if rows is not None and rows != sorted(rows):
                cause = RowsPermuted(local.subject, rank, dim, tuple(rows))
                return Diagnosis(Code.SHARD_ORDER, cause)
    return None


def _row_map(local: Local, rank: int, dim: int) -> list[int] | None:
    """For each row of the rank's tensor along `dim`, the row that it equals of all ranks'
    expected slices one after the other; None if one has none."""
    actual = local.actual[rank]
    shape = [n for d, n in enumerate(actual.shape) if d != dim]
    owners = [rank, *(r for r in local.ranks if r != rank)]
    owners = [
        r for r in owners if [n for d, n in enumerate(local.expected[r].shape) if d != dim] == shape
    ]
    if not actual.numel() or actual.shape[dim] > MOST_ROWS:
        return None
    slack = 2 * local.target.spread.elementwise_limit(actual.numel())
    rows = actual.movedim(dim, 0).reshape(actual.shape[dim], -1)
    wanted, noise = (
        torch.cat([t[r].movedim(dim, 0).reshape(t[r].shape[dim], -1) for r in owners])
        for t in (local.expected, local.sigma)
    )
    bound = slack * noise + 1e-13 * wanted.abs().max()

    def hits(row: Tensor) -> list[int]:
        found: list[int] = ((row - wanted).abs() <= bound).all(1).nonzero().flatten().tolist()
        return found

    out = []
    for row in rows:
        if not (found := hits(row)):
            return None
        out.append(found[0])
    elsewhere = [row for i, row in enumerate(rows) if out[i] != i and bool(row.any())]
    near = [factor * row for row in elsewhere[:MOST_ROWS_TRIED] for factor in _FACTORS]
    share = (sum(bool(hits(row)) for row in near) + 1) / (len(near) + 1)
    return out if share ** len(elsewhere) < CHANCE else None


def lookups(facts: Facts, local: Local) -> Diagnosis | None:
    """Each wrong row of what was looked up is empty, another row of the table, or has one too
    many; each wrong row of the table's gradient is empty, or should be."""
    problem = facts.posed.problems[0]
    ids = [t for t in problem.inputs[0].values() if not t.is_floating_point()]
    tables = [p.double() for p in problem.params.values()]
    if not ids or len(tables) != 1 or tables[0].ndim != 2:
        return None
    width = tables[0].shape[1]
    if any(t.ndim == 0 or t.shape[-1] != width for t in local.expected.values()):
        return None  # no rows of the table: a loss, or a part along its other dim
    rows, held = 0, 0
    for rank in local.ranks:
        both = (local.actual[rank], local.expected[rank])
        actual, want = (t.reshape(-1, width) for t in both)
        held += len(actual)
        wrong = ((actual - want).abs() > 1e-9 * (1 + want.abs())).any(1)
        rows += int(wrong.sum())
        pairs = zip(actual[wrong], want[wrong], strict=True)
        if not all(_misread(local, got, should, tables[0]) for got, should in pairs):
            return None
    empty = all(not local.actual[r].any() for r in local.wrong())
    if not rows or (empty and rows == held > len(local.ranks)):
        return None  # everything is zero: a buffer rather than a range
    return Diagnosis(Code.VOCAB_MASK, RowsOfTokens(local.subject, rows, held))


def _misread(local: Local, actual: Tensor, want: Tensor, table: Tensor) -> bool:
    if not actual.any():
        return True
    if local.kind is Kind.PARAM_GRAD:
        return not want.any()
    near = 1e-2 if local.target.dtype in (torch.float16, torch.bfloat16) else 1e-5
    others = torch.cat([table, want + table])
    return bool(((others - actual).abs() <= near * table.abs().max()).all(1).any())
