"""The norm of all gradients: what a spec may ask, what the reference has, and which wrong ones are
named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.diagnosis.edits import Edit, Ranks, change, examine
from tpcheck import Check, Norm, specs
from tpcheck.case import Case
from tpcheck.errors import InvalidArgument
from tpcheck.oracle.pose import Posed, pose
from tpcheck.placement import take
from tpcheck.protocol.conventions import LEARNING_RATE
from tpcheck.vocabulary import Kind

NORM = "grad_norm/norm"
DIMS = {"batch": 2, "seq": 3, "hidden": 4, "intermediate": 8, "activation": "gelu"}
CASE = Case(dims=DIMS | {"norm": "layer", "residual": False, "bias": True}, mesh={"tp": 2}, seed=4)
ORDERS = pytest.mark.parametrize("order", [1.0, 2.0, math.inf])


def spec(order: float = 2.0, *most: float) -> Any:
    return replace(specs.mlp(), norm=Norm(order, most or (0.5, 2.0)), budget=None)


@pytest.mark.parametrize("order", [0, -1.0, "2", True, float("nan")])
def test_an_order_that_is_none_is_refused(order: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Norm\(order="):
        Norm(order)


@pytest.mark.parametrize("most", [(), (0.0,), [0.5], (math.inf,), 0.5])
def test_what_nothing_can_be_clipped_to_is_refused(most: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Norm\(most="):
        Norm(most=most)


def test_a_check_clips_only_where_the_spec_asks_for_a_norm() -> None:
    with pytest.raises(InvalidArgument, match="asks for no norm"):
        Check(specs.mlp(), lambda case, mesh: None, clip=lambda module, mesh, most: 0.0)
    with pytest.raises(InvalidArgument, match="norm"):
        replace(specs.mlp(), norm=2.0)  # type: ignore[arg-type]


def values(posed: Posed, kind: Kind) -> dict[str, Tensor]:
    return {t.name: t.value for t in posed.problems[0].targets if t.kind is kind}


@ORDERS
@pytest.mark.parametrize("most", [0.5, 2.0])
def test_the_reference_clips_by_the_norm_of_all_gradients(order: float, most: float) -> None:
    posed = pose(spec(order, most), CASE)
    gradients = values(posed, Kind.PARAM_GRAD)
    every = torch.cat([gradient.flatten() for gradient in gradients.values()])
    norm = torch.linalg.vector_norm(every, order)
    torch.testing.assert_close(values(posed, Kind.GRAD_NORM)["norm"], norm, rtol=1e-12, atol=0.0)
    share = min(1.0, most * float(norm) / (float(norm) + 1e-6))
    state = posed.problems[0].params
    for name, stepped in values(posed, Kind.PARAM).items():
        want = state[name].double() - LEARNING_RATE * share * gradients[name]
        torch.testing.assert_close(stepped, want, rtol=1e-12, atol=1e-14)


def test_a_tied_parameter_counts_once() -> None:
    tied = replace(specs.tied_embedding(), norm=Norm(), budget=None)
    dims = {"batch": 1, "seq": 2, "hidden": 3, "vocab": 5}
    posed = pose(tied, Case(dims=dims, mesh={"tp": 2}))
    gradient = values(posed, Kind.PARAM_GRAD)["head.weight"]
    torch.testing.assert_close(values(posed, Kind.GRAD_NORM)["norm"], gradient.norm())


# ---- wrong ones


Parts = dict[str, dict[int, Tensor]]  # of each gradient the ranks' parts


def norm_of(how: Callable[[Parts, int, float], float], order: float) -> Edit:
    """Each rank's norm is what `how` makes of the parts of the gradients."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        gradients = values(posed, Kind.PARAM_GRAD)
        parts: Parts = {
            name: {r: take(g, posed.params[name], case=posed.case, rank=r) for r in ranks}
            for name, g in gradients.items()
        }
        for rank, held in ranks.items():
            held[NORM] = torch.tensor(how(parts, rank, order), dtype=held[NORM].dtype)

    return edit


def size(tensors: list[Tensor], order: float) -> float:
    return float(torch.linalg.vector_norm(torch.cat([t.flatten() for t in tensors]), order))


def own(parts: Parts, rank: int, order: float) -> float:
    return size([of[rank] for of in parts.values()], order)


def copies(parts: Parts, rank: int, order: float) -> float:
    return size([part for of in parts.values() for part in of.values()], order)


def added(parts: Parts, rank: int, order: float) -> float:
    return sum(own(parts, r, order) for r in (0, 1))


def one_left_out(parts: Parts, rank: int, order: float) -> float:
    rest = {name: of for name, of in parts.items() if name != "up.weight"}
    whole = [of[0] for name, of in rest.items() if name.startswith("norm") or name == "down.bias"]
    cut = [of[r] for name, of in rest.items() for r in (0, 1) if not any(of[0] is w for w in whole)]
    return size([*whole, *cut], order)


WRONG = [
    *((order, own, "missing-all-reduce") for order in (1.0, 2.0, math.inf)),
    *((order, added, "summed-twice") for order in (1.0, 2.0, math.inf)),
    # the largest of all is the largest, however often it counts
    *((order, copies, "summed-twice") for order in (1.0, 2.0)),
    *((order, one_left_out, "gradient-dropped") for order in (1.0, 2.0)),
]


@pytest.mark.parametrize(("order", "how", "code"), WRONG)
def test_a_norm_that_counts_otherwise_is_named(
    order: float, how: Callable[[Parts, int, float], float], code: str
) -> None:
    named = examine(norm_of(how, order), spec=spec(order), case=CASE)
    assert named.code == code, named


def test_another_norm_is_not_named() -> None:
    other = change(NORM, lambda old, r: 1.2345 * old[r])
    assert examine(other, spec=spec(), case=CASE).code == "unclassified"


def test_ranks_that_do_not_clip_where_others_do_are_named() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for name, gradient in values(posed, Kind.PARAM_GRAD).items():
            whole = posed.problems[0].params[name].double() - LEARNING_RATE * gradient
            ranks[1][f"param/{name}"] = take(
                whole, posed.params[name], case=posed.case, rank=1
            ).clone()

    named = examine(edit, spec=spec(2.0, 0.5), case=CASE)
    assert (named.code, "not clipped" in named.message) == ("replicas-differ", True)
