"""A scale of all parts that is taken of one: told by what each part gives by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.unit.diagnosis.edits import CASE, DIMS, OUT, Edit, Ranks, examine
from tpcheck import specs
from tpcheck.case import Case
from tpcheck.causes.altered import ScaledByOwnParts
from tpcheck.causes.where import Subject
from tpcheck.layout import Layout
from tpcheck.oracle.pose import Posed
from tpcheck.placement import Shard
from tpcheck.spec import Spec
from tpcheck.specs.float8 import NUMBERS, Float8Linear, cast, largest
from tpcheck.vocabulary import Kind

SPEC = specs.float8_row_linear()
EIGHT = Case(dims=DIMS | {"bias": True, "scaling": "tensor"}, mesh={"tp": 4}, seed=11)


def output(*own: str, factor: float = 1.0) -> Edit:
    """The output where these are scaled by each rank's own part, by `factor` of its largest."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        x, w = problem.inputs[0]["x"], problem.params["weight"]

        def parts(name: str, full: Tensor) -> list[Tensor]:
            whole = [part if name in own else full for part in full.chunk(4, -1)]
            each = zip(full.chunk(4, -1), whole, strict=True)
            return [cast(p, factor * largest(of, "tensor"), NUMBERS) for p, of in each]

        pairs = zip(parts("x", x), parts("weight", w), strict=True)
        total = sum((F.linear(*pair) for pair in pairs), start=torch.zeros(()))
        for held in ranks.values():
            held[OUT] = total + problem.params["bias"]

    return edit


@pytest.mark.parametrize("own", [("x",), ("weight",), ("x", "weight")])
def test_a_scale_of_each_rank_s_own_part_is_not_shared(own: tuple[str, ...]) -> None:
    named = examine(output(*own), spec=SPEC, case=EIGHT)
    assert named.code == "scale-not-shared"
    assert named.cause == ScaledByOwnParts(Subject(Kind.OUTPUT, "output"), own)


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_what_rounds_inside_of_a_cond_rounds() -> None:
    """Its products are sums of whole numbers of few digits."""

    def cond(x: Tensor, weight: Tensor) -> Tensor:
        return torch.cond(x.sum() > -1e9, rounded, lambda x, weight: x @ weight.T, (x, weight))

    def rounded(x: Tensor, weight: Tensor) -> Tensor:
        scale = x.abs().amax().clamp(min=1e-9) / 7
        return (x / scale).round() * scale @ weight.T

    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(12, 8))

        def forward(self, x: Tensor) -> Tensor:
            return cond(x, self.weight)

    def edit(ranks: Ranks, posed: Posed) -> None:
        problem = posed.problems[0]
        pairs = [t.chunk(4, -1) for t in (problem.inputs[0]["x"], problem.params["weight"])]
        total = sum(rounded(*own) for own in zip(*pairs, strict=True))
        for held in ranks.values():
            held[OUT] = total

    spec = replace(specs.row_linear(), reference=lambda case: Rounded())
    case = replace(EIGHT, dims=DIMS | {"bias": False})
    assert examine(edit, spec=spec, case=case).code == "scale-not-shared"


def test_another_scale_of_the_whole_is_something_else() -> None:
    assert examine(output(factor=1.5), spec=SPEC, case=EIGHT).code == "unclassified"
    assert examine(output("x", factor=1.5), spec=SPEC, case=EIGHT).code == "unclassified"


def test_what_is_linear_is_never_its_parts_scale() -> None:
    def edit(ranks: Ranks, posed: Posed) -> None:
        for held in ranks.values():
            held[OUT] = held[OUT] * 1.01

    assert examine(edit, case=CASE).code == "unclassified"


def test_a_reference_that_raises_for_zeros_is_not_asked_further() -> None:
    class Strict(Float8Linear):
        def forward(self, x: Tensor) -> Tensor:
            if not (self.weight != 0).all():
                raise ArithmeticError("a weight of zero")
            return super().forward(x)

    def strict(case: Case) -> Strict:
        return Strict(8, 12, scaling="tensor")

    spec = replace(SPEC, reference=strict)
    assert examine(output("x"), spec=spec, case=EIGHT).code == "scale-not-shared"
    assert examine(output("weight"), spec=spec, case=EIGHT).code == "unclassified"


NORM = Spec(
    name="norm",
    cases=[Case(dims={"width": 8}, mesh={"tp": 2})],
    reference=lambda case: lambda x: norm(x, x.shape[-1]),
    inputs=lambda case, draw: {"x": draw("x", 5, case["width"])},
    layout=lambda case: Layout(inputs={"x": Shard(1)}, outputs={"output": Shard(1)}),
)


def norm(x: Tensor, width: int) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) / width + 1e-6).rsqrt()


def test_what_is_taken_of_all_parts_and_rounds_nothing_is_no_scale() -> None:
    """Its own parts, added up, are what the ranks hold, too."""

    def edit(ranks: Ranks, posed: Posed) -> None:
        parts = posed.problems[0].inputs[0]["x"].chunk(2, 1)
        for rank, held in ranks.items():
            held[OUT] = norm(parts[rank], 8)

    case = Case(dims={"width": 8}, mesh={"tp": 2})
    assert examine(edit, spec=NORM, case=case).code != "scale-not-shared"
