"""What a rank's parameters are filled from, and what is said where it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixtures.parallel.linear import ColumnLinear
from fixtures.parallel.sharding import load_full
from tests import candidates
from tpcheck import Case, Check, Layout, Replicate, Spec, specs
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.evidence import Misheld, Raised
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict
from tpcheck.vocabulary import Fault, Kind

SPEC = candidates.check(candidates.Row).spec


def nothing(case: Any, mesh: Any) -> Any:
    return None


def function(case: Any, mesh: Any) -> Any:
    return F.relu


@pytest.mark.parametrize(("build", "returned"), [(nothing, "None"), (function, "a function")])
def test_what_is_no_module_is_said_to_have_no_parameters(
    gloo: Engine, build: Any, returned: str
) -> None:
    runner = Runner(Check(SPEC, build), gloo)
    named = examine_failure(runner, runner.run(candidates.CASE)).diagnosis
    assert named.code == "plan-entry-unmatched"
    said = f"the candidate has no 'weight': its build(case, mesh) returned {returned}, not a module"
    assert named.message == said


def whole_linear(case: Any, mesh: Any) -> Any:
    return nn.Linear(case["in_features"], case["out_features"], bias=case["bias"])


class Raises(candidates.Row):
    """Sharded as it should be; the view of a whole weight, too, is no reason to raise."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        everything = torch.zeros(64, 64, dtype=torch.float64)  # the case's: kept as it is
        self.weight = nn.Parameter(everything[: len(self.weight), : self.weight.shape[1]])

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("for another reason")


def test_a_weight_that_is_whole_is_why_its_forward_raises_and_the_twin(gloo: Engine) -> None:
    """A part of an input does not fit it, and what is raised then says nothing of that."""
    for build, code in (
        (whole_linear, "parameter-not-sharded"),
        (candidates.linear(Raises), "rank-crash"),
    ):
        runner = Runner(Check(SPEC, build), gloo)
        result = runner.run(candidates.CASE)
        named = examine_failure(runner, result).diagnosis
        assert named.code == code, named
        assert [m.rank for m in result.mismatches if m.kind is Kind.EXCEPTION] == [0, 1]
        at_fault = [m for m in result.mismatches if m.kind is Kind.SHARDING]
        assert [(m.tensor, m.rank) for m in at_fault] == (
            [("weight", 0), ("weight", 1)] if code == "parameter-not-sharded" else []
        )
        assert all(m.scene.misheld is None for m in result.mismatches)


class Flat(candidates.Row):
    """Its parameters are views of one buffer, which has nothing else."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        rows, columns = self.weight.shape
        whole = rows * columns * self.parts
        buffer = torch.zeros(whole + len(self.bias), dtype=torch.float64)  # kept as it is
        self.bias = nn.Parameter(buffer[whole:])
        weight = buffer[:whole].view(rows, columns * self.parts)
        self.weight = nn.Parameter(weight.chunk(self.parts, 1)[self.rank if self.parts > 1 else 0])

    @property
    def parts(self) -> int:
        return 1


class WholeInFlat(Flat):
    """The weight of all ranks is in the buffer."""

    @property
    def parts(self) -> int:
        return 2


def test_views_of_one_buffer_keep_what_is_theirs(gloo: Engine) -> None:
    case = Case(candidates.linear_dims(32, 32, bias=True), mesh={"tp": 2})
    for build, code in ((Flat, None), (WholeInFlat, "parameter-not-sharded")):
        runner = Runner(candidates.check(build), gloo)
        result = runner.run(case)
        assert {m.kind for m in result.mismatches} == ({Kind.SHARDING} if code else set())
        if code:
            assert examine_failure(runner, result).diagnosis.code == code


# ---- buffers that no checkpoint holds


class Scaled(nn.Module):
    """x → x·w, times a table that it computes."""

    table: Tensor
    which: Tensor

    def __init__(self, table: Tensor | None, order: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        if table is not None:
            self.register_buffer("table", table, persistent=False)
            self.register_buffer("which", torch.tensor(order), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "table"):
            return x * self.weight * TABLE.to(x.dtype)
        return x * self.weight * self.table.reshape(-1)[-4:][self.which]


TABLE = torch.tensor([1.5, 0.1, 3.0, 0.7])
OF_TABLE = Spec(
    cases=lambda space: None,
    reference=lambda case: Scaled(TABLE.clone()),
    inputs=lambda case, draw: {"x": draw("x", 3, 4)},
    layout=lambda case: Layout(params={"weight": Replicate()}),
    name="scaled",
)
TWO = Case(dims={}, dtype="float32", mesh={"tp": 2})


def fill(module: Any, state: Any) -> None:
    assert set(state) == {"weight"}
    with torch.no_grad():
        module.weight.copy_(state["weight"])


def replace_all(module: Any, state: Any) -> None:
    module.weight = nn.Parameter(state["weight"].clone())
    module.register_buffer("table", module.table.clone(), persistent=False)


@pytest.mark.parametrize("load", [None, fill, replace_all])
@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: Scaled(TABLE.clone()), None),
        (lambda: Scaled(torch.exp(TABLE.double().log()).float()), None),
        (lambda: Scaled(TABLE.double()), None),
        (lambda: Scaled(torch.stack([TABLE, TABLE])), None),  # another shape is its own affair
        (lambda: Scaled(TABLE * 2), "wrong-buffer"),
        (lambda: Scaled(TABLE.bfloat16()), "precision-loss"),
        (lambda: Scaled(TABLE.clone(), order=(0, 1, 3, 2)), "wrong-buffer"),
        (lambda: Scaled(torch.full((4,), torch.nan)), "unwritten-memory"),
    ],
)
def test_what_no_checkpoint_holds_is_compared_and_left_alone(
    gloo: Engine, made: Any, code: str | None, load: Any
) -> None:
    runner = Runner(Check(OF_TABLE, lambda case, mesh: made(), load=load), gloo)
    result = runner.run(TWO)
    if code is None:
        assert result.verdict is Verdict.PASS, result.mismatches
        return
    assert result.verdict is Verdict.FAIL
    assert examine_failure(runner, result).diagnosis.code == code


def test_a_candidate_may_have_none(gloo: Engine) -> None:
    runner = Runner(Check(OF_TABLE, lambda case, mesh: Scaled(None)), gloo)
    assert runner.run(TWO).verdict is Verdict.PASS


def whole(module: Any, state: Any) -> None:
    module.weight = nn.Parameter(state["weight"].clone())


def test_what_a_loader_puts_in_place_is_what_is_judged(gloo: Engine) -> None:
    """The rank's part before, the whole weight after."""
    check = candidates.check(candidates.Row)
    runner = Runner(replace(check, load=whole), gloo)
    result = runner.run(candidates.CASE)
    (fault,) = {m.detail.fault for m in result.mismatches if isinstance(m.detail, Misheld)}
    assert fault is Fault.WHOLE
    assert examine_failure(runner, result).diagnosis.code == "parameter-not-sharded"


class Freed(candidates.Row):
    """Its parameters have given their memory back, as FSDP's have between forwards."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.parameters():
            parameter.untyped_storage().resize_(0)


def regrown(module: Any, state: Any) -> None:
    for parameter in module.parameters():
        parameter.untyped_storage().resize_(parameter.nbytes)
    load_full(module, state)


def test_memory_that_was_given_back_is_for_the_loader_to_make(gloo: Engine) -> None:
    check = candidates.check(Freed)
    assert Runner(replace(check, load=regrown), gloo).run(candidates.CASE).verdict is Verdict.PASS
    for one in (check, replace(check, load=lambda module, state: None)):
        result = Runner(one, gloo).run(candidates.CASE)
        (said,) = {m.detail.text for m in result.mismatches if isinstance(m.detail, Raised)}
        assert "weight is without memory, after it was loaded" in said


def test_a_lazy_module_is_told_to_have_no_shape_yet(gloo: Engine) -> None:
    """It was torch's own words, and lines of ours."""
    check = candidates.check(lambda *_, **__: nn.LazyLinear(3))
    result = Runner(check, gloo).run(candidates.CASE)
    (said,) = {m.detail.text for m in result.mismatches if isinstance(m.detail, Raised)}
    assert said.startswith("weight has no shape before a first forward (a lazy module)")
    assert not any(m.scene.stack for m in result.mismatches)


def times(factor: Any) -> Any:
    """A loader that leaves the bias so many times what it should be, by the rank."""

    def load(module: Any, state: Any) -> None:
        load_full(module, {**state, "bias": state["bias"] * factor(module.rank)})

    return load


@pytest.mark.parametrize(
    ("out", "factor", "code"),
    [
        (1, lambda rank: 0.5 + rank, "replicas-differ"),
        (3, lambda rank: 0.5 + rank, "replicas-differ"),
        (1, lambda rank: 2.0, "summed-twice"),
        (3, lambda rank: 2.0, "summed-twice"),
    ],
)
def test_one_number_is_no_multiple_by_chance(
    gloo: Engine, out: int, factor: Any, code: str
) -> None:
    check = replace(candidates.check(candidates.Row), load=times(factor))
    runner = Runner(check, gloo)
    dims = {**candidates.CASE.dims, "out_features": out, "bias": True}
    result = runner.run(replace(candidates.CASE, dims=dims))
    assert examine_failure(runner, result).diagnosis.code == code


class Floors(ColumnLinear):
    """Each rank has as many rows, and the last ones nobody has."""

    def __init__(self, in_features: int, out_features: int, **options: Any) -> None:
        super().__init__(in_features, out_features - out_features % 2, **options)


def test_a_rank_that_waits_for_one_that_could_not_run_is_no_hang(gloo: Engine) -> None:
    check = replace(candidates.check(Floors), spec=specs.column_linear())
    case = replace(candidates.CASE, dims={**candidates.CASE.dims, "out_features": 5})
    result = Runner(check, gloo).run(case)
    assert {(m.kind, m.rank) for m in result.mismatches} == {(Kind.SHARDING, 0)}
    assert {m.tensor for m in result.mismatches} >= {"weight"}
