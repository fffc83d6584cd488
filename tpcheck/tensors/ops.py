"""What a function of tensors may be besides a plain one: an op of `torch.library`, or compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket


def within(function: Any) -> Any:
    """The function inside of `functools.partial`, and of what passes options on to it."""
    while isinstance(function, partial):
        inner = function.func
        function = getattr(getattr(inner, "__self__", None), "fn", inner)
    return function


def is_op(thing: Any) -> bool:
    """Whether it is an op of `torch.library`."""
    return isinstance(thing, (CustomOpDef, OpOverload, OpOverloadPacket))


def name_of(op: Any) -> str:
    """`library::op`."""
    if isinstance(op, CustomOpDef):
        return str(op._qualname)
    return str(op._schema.name if isinstance(op, OpOverload) else op._qualified_op_name)


def overload_of(op: Any) -> OpOverload | None:
    """The one overload of an op; None where it has several."""
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverload):
        return op
    names = op.overloads()
    return getattr(op, names[0]) if len(names) == 1 else None


def shows_its_kernels(op: OpOverload) -> bool:
    """Whether torch traces through an op to its Triton kernels (`torch.library.triton_op`)."""
    known = OPDEFS.get(name_of(op))
    return known is not None and known._init_fn.__module__ == "torch._library.triton"


def lacks_backward(thing: Any) -> bool:
    """Whether it is an op without an autograd formula, of which torch says so by an error in
    backward."""
    thing = within(thing)
    known = OPDEFS.get(name_of(thing)) if is_op(thing) else None
    return known is not None and known._backward_fn is None


def is_compiled(thing: Any) -> bool:
    """Whether `torch.compile` made it."""
    marks = getattr(thing, "__dict__", {})
    return "_torchdynamo_orig_callable" in marks and not marks.get("_torchdynamo_disable")
