"""What the parts of a `Check` must be to go together, told where it is made."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tpcheck.errors import InvalidArgument
from tpcheck.given import demand, demand_takes, is_amount, refuses


def require_calls(check: Any) -> None:
    """Its functions take what they are given."""
    loads = ["module", "state" if check.save is None else "folder"]
    saves = ["module", "folder"]
    if check.resumes:
        loads = saves = ["module", "optimizer", "folder"]
    taken = {
        "candidate": ["case", "mesh"],
        "load": loads,
        "save": saves,
        "schedule": ["module", "inputs", "cotangents"],
        "clip": ["module", "mesh", "most"],
        "optimizer": ["module", "mesh"],
        "witness": ["case"],
    }
    for part, arguments in taken.items():
        if getattr(check, part) is not None:
            demand_takes(check, part, *arguments)


def require_checkpoint(check: Any) -> None:
    """What saves, loads and resumes."""
    if check.save is not None and check.load is None:
        raise InvalidArgument(
            "Check(save=…): nothing loads what it saves; give load=(module, folder) -> None"
        )
    if check.resumes:
        _require_training(check)
    demand(check, "reads", check.reads is None or is_amount(check.reads), "a number, or None")
    if check.reads is None:
        return
    if check.save is None:
        raise InvalidArgument(
            "Check(reads=…): without save= there is no checkpoint whose files are read; give "
            "save=(module, folder) -> None"
        )
    # on threads, what one rank reads can't be told from what others do
    object.__setattr__(check, "processes", True)


def require_place_of_contexts(check: Any) -> None:
    """Where a check has contexts, something runs in them, once for each."""
    for part in ("context", "forward_context"):
        one = getattr(check, part)
        made = isinstance(one, AbstractContextManager) and refuses(one) is not None
        demand(check, part, not made, "the function that makes it: each pass has its own")
        if one is not None:
            demand_takes(check, part)
    if check.kernel is not None and (check.context or check.forward_context):
        raise InvalidArgument("Check(context=…): a kernel is called in none: let it open one")
    if check.schedule is not None and check.forward_context is not None:
        raise InvalidArgument(
            "Check(forward_context=…): a schedule calls forwards itself: let it open one"
        )


def _require_training(check: Any) -> None:
    """What resumes has an optimizer that the candidate can save whole, and saves it."""
    training = check.spec.training
    cannot = {
        "nothing is saved; give save=(module, optimizer, folder) -> None, and load": (
            check.save is None
        ),
        f"spec {check.spec.name!r} has no steps to go on with; give Spec(training=Training(…))": (
            training is None
        ),
        "the copies of Training(main=…) are the harness's; give an optimizer= that has them": (
            training is not None and training.main is not None and check.optimizer is None
        ),
        "a scaled loss is not resumed; leave Training(scaling=…) out": (
            training is not None and training.scaling is not None
        ),
        "what is read of a checkpoint of training is not judged; leave reads= out": (
            check.reads is not None
        ),
    }
    for why, so in cannot.items():
        if so:
            raise InvalidArgument(f"Check(resumes=True): {why}")
