"""Divergences of liger-kernel, between a student's and a teacher's distributions."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import ALL_OR_NONE, released
from fixtures.released.liger import PACKAGE, op
from fixtures.released.liger_references import (
    IGNORED,
    PROJECTED,
    SCALED_AGAIN,
    TOKENS,
    every_other,
    mixed,
)
from tpcheck import Argument, Case
from tpcheck.tensors.strides import format_of

_STUDENT = {"student": Argument("tokens", "vocab"), "teacher": Argument("tokens", "vocab")}


def _jsd(beta: float) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        logs = student.log_softmax(-1), teacher.detach().log_softmax(-1)
        return op("JSD")(*logs, None, beta, IGNORED)

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        logs = student.log_softmax(-1), teacher.detach().log_softmax(-1)
        return mixed(*logs, beta).mean()

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=TOKENS)


jsd = _jsd(0.5)
jsd_tenth = _jsd(0.1)
jsd_forward_kl = _jsd(0.0)
jsd_reverse_kl = _jsd(1.0)


TINY = 1e-10  # its default: targets below it have its logarithm


def _kl_div(reduction: str) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        given = student.log_softmax(-1), teacher.detach().softmax(-1)
        return op("KLDivLoss")(*given, reduction, False, TINY).to(student.dtype)  # float32

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        logs, target = student.log_softmax(-1), teacher.detach().softmax(-1)
        each = target * (target.clamp_min(TINY).log() - logs)
        if reduction == "none":
            return each
        return each.sum() / (len(each) if reduction == "batchmean" else 1)

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=TOKENS)


kl_div = _kl_div("batchmean")
kl_div_sum = _kl_div("sum")
kl_div_none = _kl_div("none")


def _tvd(reduction: str) -> Any:
    def fn(student: Tensor, teacher: Tensor) -> Tensor:
        given = student.softmax(-1), teacher.detach().softmax(-1)
        return op("TVDLoss")(*given, None, reduction).to(student.dtype)  # float32

    def reference(student: Tensor, teacher: Tensor) -> Tensor:
        each = (student.softmax(-1) - teacher.detach().softmax(-1)).abs() / 2
        if reduction == "batchmean":
            return each.sum(-1).mean()
        return each.sum() if reduction == "sum" else each

    return released(PACKAGE, fn, reference=reference, arguments=_STUDENT, sizes=TOKENS)


tvd = _tvd("batchmean")
tvd_sum = _tvd("sum")
tvd_none = _tvd("none")


def _differ(case: Case) -> bool:
    """Whether the two distributions do: rows that are all alike make both uniform, and one tensor
    for both makes them one."""
    apart = case.memory != "aliased"
    return apart and any(format_of(case, name) != "expanded" for name in ("weight", "fixed"))


def _fused_linear_jsd(beta: float) -> Any:
    def fn(student: Tensor, weight: Tensor, teacher: Tensor, fixed: Tensor) -> Tensor:
        given = student, weight, teacher.detach(), fixed.detach()
        return op("FusedLinearJSD")(*given, None, beta, IGNORED, 1.0).to(student.dtype)

    def reference(student: Tensor, weight: Tensor, teacher: Tensor, fixed: Tensor) -> Tensor:
        told = F.linear(teacher.detach(), fixed.detach())
        logs = F.linear(student, weight).log_softmax(-1), told.log_softmax(-1)
        return mixed(*logs, beta).mean()

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "student": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "teacher": Argument("tokens", "hidden"),
            "fixed": Argument("vocab", "hidden"),
        },
        sizes=PROJECTED,
        families=("normal",),  # in others gradients may be zero
        known=[
            replace(
                SCALED_AGAIN,
                code=("second-backward", "race"),  # and liger-jsd-transposed-weight.md
                when=lambda case: case.gradients == "all" and _differ(case),
            )
        ],
        dtypes=("float32", "bfloat16"),  # in float16 gradients may be zero
        gradients=ALL_OR_NONE,
        large=False,
    )


fused_linear_jsd = _fused_linear_jsd(0.5)


def _fused_linear_kl_div(reduction: str, temperature: float = 1.0, *, ignored: bool = False) -> Any:
    """ignored: those of odd tokens, by their labels."""

    def labels(target: Tensor) -> Tensor:
        return every_other(torch.zeros(len(target), dtype=torch.int64))

    def given(teacher: Tensor, x: Tensor) -> Tensor:
        """Not uniform, as the student's may be: gradients that are zero show nothing."""
        return ((teacher + torch.arange(teacher.shape[-1]) / 4).to(x.dtype)).softmax(-1)

    def fn(x: Tensor, weight: Tensor, teacher: Tensor) -> Tensor:
        target = given(teacher, x)
        told = labels(target) if ignored else None
        losses = op("FusedLinearKLDiv")(
            x, weight, target, told, reduction, IGNORED, temperature, TINY, None
        )
        return losses.to(x.dtype)

    def reference(x: Tensor, weight: Tensor, teacher: Tensor) -> Tensor:
        target = given(teacher, x)
        logs = (F.linear(x, weight) / temperature).log_softmax(-1)
        each = target * (target.clamp_min(TINY).log() - logs)
        if ignored:
            each = each[labels(target) != IGNORED]
        count = {"batchmean": len(each), "mean": each.numel(), "sum": 1}[reduction]
        return each.sum() / count

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments={
            "x": Argument("tokens", "hidden"),
            "weight": Argument("vocab", "hidden"),
            "teacher": Argument("tokens", "vocab", integers=(0, 8)),  # has no gradient
        },
        sizes=PROJECTED,
        families=("normal", "shifted", "outlier"),  # in others gradients may be zero
        known=[replace(SCALED_AGAIN, code=("second-backward", "race"))],  # the race: as above
        dtypes=("float32", "bfloat16"),  # in float16 gradients may be zero
        gradients=ALL_OR_NONE,
        large=False,
    )


fused_linear_kl_div = _fused_linear_kl_div("batchmean")
fused_linear_kl_div_mean = _fused_linear_kl_div("mean", 2.0)
fused_linear_kl_div_sum = _fused_linear_kl_div("sum", ignored=True)


def _fused_ce_tvd(told: Any = torch.clone) -> Any:
    """Both per token, in float32."""

    def fn(student: Tensor, teacher: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return op("FusedCETVD")(student, teacher.detach(), told(target), IGNORED)

    def reference(student: Tensor, teacher: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        apart = (student.softmax(-1) - teacher.detach().softmax(-1)).abs().sum(-1) / 2
        target = told(target)
        return F.cross_entropy(student, target, reduction="none"), apart * (target != IGNORED)

    return released(
        PACKAGE,
        fn,
        reference=reference,
        arguments=_STUDENT | {"target": Argument("tokens", integers=(0, "vocab"))},
        sizes=TOKENS,
    )


fused_ce_tvd = _fused_ce_tvd()
fused_ce_tvd_ignored = _fused_ce_tvd(every_other)
