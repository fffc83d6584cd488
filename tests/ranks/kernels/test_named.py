"""What a wrong function is said to do: not more than is known, and not something else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ranks.kernels.test_kernel_check import code, run
from tpcheck import Argument, Case, Check, kernel_check
from tpcheck.diagnosis.examine import examine_failure
from tpcheck.engines.engine import Engine
from tpcheck.runner.runner import Runner
from tpcheck.verdict import Verdict

#: Of each dtype and each name others are in each run.
SWEEP = pytest.mark.sweep

_calls = itertools.count(1)


def raises_each_seventh_time(x: Tensor, y: Tensor) -> Tensor:
    if next(_calls) % 7 == 0:
        raise RuntimeError("no workspace is left")
    return x * y


_fifth = itertools.count(1)


def wrong_each_fifth_time(x: Tensor, y: Tensor) -> Tensor:
    return x * y * (1.0 if next(_fifth) % 5 else 1.5)


_shapes = itertools.count(1)


def another_shape_each_second_time(x: Tensor, y: Tensor) -> Tensor:
    z = x * y
    return z if next(_shapes) % 2 else torch.cat([z, z])


@pytest.mark.parametrize("wrong", [wrong_each_fifth_time, another_shape_each_second_time])
def test_what_is_wrong_now_and_then_is_not_put_down_to_what_it_is_given(
    wrong: Any, gloo: Engine
) -> None:
    assert code(run(wrong, gloo)) == "not-repeatable"


class UpstreamInBfloat16(torch.autograd.Function):
    """x · y, where backward rounds what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        dz = dz.bfloat16().to(x.dtype)
        return dz * y, dz * x


class UpstreamClamped(UpstreamInBfloat16):
    """The same, where it is at most one."""

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        dz = dz.clamp(-1, 1)
        return dz * y, dz * x


@pytest.mark.parametrize(
    ("wrong", "named"),
    [(UpstreamClamped, "upstream-ignored"), (UpstreamInBfloat16, "precision-loss")],
)
def test_upstream_gradients_that_are_rounded_are_used(
    wrong: type[UpstreamInBfloat16], named: str, gloo: Engine
) -> None:
    assert code(run(wrong.apply, gloo)) == named


def normalised(x: Tensor, mean: Tensor, eps: float = 1e-5) -> Tensor:
    apart = x - mean
    return apart * torch.rsqrt((apart * apart).mean(-1, keepdim=True) + eps)


def layer_norm(x: Tensor) -> Tensor:
    return normalised(x, x.mean(-1, keepdim=True))


def with_a_mean_in_bfloat16(x: Tensor) -> Tensor:
    return normalised(x, x.mean(-1, keepdim=True).bfloat16().to(x.dtype))


def with_a_root_in_float16(x: Tensor) -> Tensor:
    apart = x - x.mean(-1, keepdim=True)
    root = torch.rsqrt((apart * apart).mean(-1, keepdim=True) + 1e-5)
    return apart * root.half().to(x.dtype)


def with_a_part_in_bfloat16(x: Tensor) -> Tensor:
    y = layer_norm(x)
    return 0.3 * y + 0.7 * y.bfloat16().to(x.dtype)


def with_another_epsilon(x: Tensor) -> Tensor:
    return normalised(x, x.mean(-1, keepdim=True), 2e-4)


def with_a_mean_that_is_a_little_off(x: Tensor) -> Tensor:
    return normalised(x, 0.999 * x.mean(-1, keepdim=True))


def with_a_factor(x: Tensor) -> Tensor:
    return layer_norm(x) * 1.001


def with_the_square_of_a_thousandth(x: Tensor) -> Tensor:
    y = layer_norm(x)
    return y + 0.001 * y * y


@pytest.mark.parametrize(
    ("wrong", "dtype", "named"),
    [
        pytest.param(with_a_mean_in_bfloat16, "float32", "precision-loss", marks=SWEEP),
        (with_a_mean_in_bfloat16, "float64", "precision-loss"),
        pytest.param(with_a_root_in_float16, "float32", "precision-loss", marks=SWEEP),
        # what is normalised does not hang on a factor of all inputs
        pytest.param(with_a_part_in_bfloat16, "float32", "precision-loss", marks=SWEEP),
        (with_a_part_in_bfloat16, "float64", "precision-loss"),
        pytest.param(with_another_epsilon, "float32", "unclassified", marks=SWEEP),
        (with_a_mean_that_is_a_little_off, "float64", "unclassified"),
        pytest.param(with_a_factor, "float32", "unclassified", marks=SWEEP),
        pytest.param(with_the_square_of_a_thousandth, "float64", "unclassified", marks=SWEEP),
    ],
)
def test_what_is_rounded_on_the_way_is_told_from_another_formula(
    wrong: Any, dtype: str, named: str, gloo: Engine
) -> None:
    about = {"reference": layer_norm, "arguments": {"x": Argument("rows", "width")}}
    found = run(wrong, gloo, **about, dtypes=(dtype,), families=("normal", "shifted"))
    assert code(found) == named, found.counterexample


class SavedInBfloat16(torch.autograd.Function):
    """x over the root of its mean square, which is kept in bfloat16 for backward: of a row of one
    number nothing is left of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward((x * root).bfloat16().to(x.dtype), root)
        return x * root

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        y, root = ctx.saved_tensors
        dy: Tensor = upstream[0]
        return root * (dy - y * (dy * y).mean(-1, keepdim=True))


def root_mean_square(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def test_a_gradient_that_is_rounded_away_is_not_dropped(gloo: Engine) -> None:
    about = {"reference": root_mean_square, "arguments": {"x": Argument("rows", "width")}}
    found = run(SavedInBfloat16.apply, gloo, **about, families=("normal",))
    assert code(found) == "precision-loss", found.counterexample


def cut(x: Tensor) -> Tensor:
    return (40 * x).int()


def test_an_integer_is_not_rounded_on_the_way(gloo: Engine) -> None:
    about = {"reference": lambda x: (40 * x).round().int(), "families": ("shifted",)}
    found = run(cut, gloo, **about, arguments={"x": Argument("rows", "width", gradient=False)})
    assert code(found) == "unclassified"


def with_few_sizes(x: Tensor, *, bits: int) -> Tensor:
    assert (x.shape[1], bits) in {(3, 4), (5, 4)}, "neither is drawn otherwise"
    return layer_norm(x) + (layer_norm(x) * 2**bits).floor() / 2**20


def test_a_larger_case_has_the_sizes_and_options_that_may_be(gloo: Engine) -> None:
    options: dict[str, Any] = {"sizes": {"width": [3, 5]}, "options": {"bits": [4]}}
    about = {"arguments": {"x": Argument("rows", "width")}, "dtypes": ("float32",), **options}
    found = run(with_few_sizes, gloo, reference=lambda x, *, bits: layer_norm(x), **about)
    assert code(found) in {"unclassified", "precision-loss"}
    rules = kernel_check(with_few_sizes, reference=with_few_sizes, **about).kernel
    assert rules is not None and rules.free == ("rows",)


_sizes: set[int] = set()
_tables: dict[torch.Size, Tensor] = {}


def wrong_in_the_first_call_of_a_size(x: Tensor, y: Tensor) -> Tensor:
    first = x.shape[-1] not in _sizes
    _sizes.add(x.shape[-1])
    return x * y + float(first)


def by_the_first_table_of_a_size(x: Tensor, at: Tensor) -> Tensor:
    table = _tables.setdefault(x.shape, at.double().clone())
    return x * table[:, None].to(x.dtype)


def named_in(check: Check, case: Case, engine: Engine) -> str:
    """What the failure of one case is called, where nothing has run before it."""
    runner = Runner(check, engine)
    runner.renew()
    failed = runner.run(case)
    assert failed.verdict is Verdict.FAIL
    return examine_failure(runner, failed).diagnosis.code


def test_a_fault_of_first_calls_is_not_put_down_to_how_the_case_is(gloo: Engine) -> None:
    """A case of the same size is right, whatever else is changed in it."""
    arguments = {"x": Argument("rows", "width"), "y": Argument("rows", "width")}
    check = kernel_check(
        wrong_in_the_first_call_of_a_size, reference=lambda x, y: x * y, arguments=arguments
    )
    case = Case(dims={"rows": 2, "width": 3}, mesh={"tp": 1})
    for changed in ({"gradients": "none"}, {"memory": "padded"}):
        assert named_in(check, replace(case, **changed), gloo) == "not-repeatable"


def test_a_table_of_the_first_call_of_a_size_is_kept_from_it(gloo: Engine) -> None:
    """The second call's numbers alone are right, where nothing of the first is there."""
    check = kernel_check(
        by_the_first_table_of_a_size,
        reference=lambda x, at: x * at[:, None].to(x.dtype),
        arguments={"x": Argument("rows", "width"), "at": Argument("rows", integers=(0, 99))},
    )
    case = Case(dims={"rows": 3, "width": 3}, mesh={"tp": 1}, microbatches=2)
    assert named_in(check, case, gloo) == "stale-buffer"


def test_what_raises_in_some_calls_is_shown(gloo: Engine) -> None:
    found = run(raises_each_seventh_time, gloo).counterexample
    assert found is not None and "no workspace is left" in found.diagnosis.message, found
    assert "(in backward)" not in found.diagnosis.message


FLAGS: list[tuple[Any, Any]] = [
    (lambda x, y: x > y + 1, lambda x, y: x > y),
    (lambda x, y: torch.zeros_like(x, dtype=torch.int32), lambda x, y: 1 + (x > y).int()),
    (lambda x, y: (x > y).long(), lambda x, y: (x > y).int()),
]


@pytest.mark.parametrize(("wrong", "reference"), FLAGS, ids=["bool", "zero", "wider"])
def test_integers_and_flags_are_not_memory_that_nobody_wrote(
    wrong: Any, reference: Any, gloo: Engine
) -> None:
    found = run(wrong, gloo, reference=reference).counterexample
    assert found is not None and found.diagnosis.code != "unwritten-memory", found
    assert found.diagnosis.code != "precision-loss"
    assert "the diagnosis itself failed" not in found.diagnosis.message


def unwritten_flags(x: Tensor, y: Tensor) -> Tensor:
    flags = torch.empty(x.shape, dtype=torch.bool)
    flags[x > y] = True
    return flags


def test_a_flag_that_is_wrong_in_several_calls_is_explained(gloo: Engine) -> None:
    found = run(unwritten_flags, gloo, reference=lambda x, y: x > y).counterexample
    assert found is not None and "the diagnosis itself failed" not in found.diagnosis.message


def test_a_wrong_flag_has_a_diagnosis(gloo: Engine) -> None:
    """Flags have no difference."""
    flags = {"reference": lambda x, y: x * y > 0, "families": ("zeros",)}
    found = run(lambda x, y: x * y >= 0, gloo, **flags).counterexample
    assert found is not None and found.diagnosis.message == (
        "output is wrong; none of the known causes fits"
    )
