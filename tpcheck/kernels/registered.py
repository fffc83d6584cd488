"""Ops of `torch.library` that a function calls, each held to `torch.library.opcheck`: whether its
schema, its autograd, its fake kernel and its compiled form are what the op does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tpcheck.evidence import Misregistered
from tpcheck.kernels.interpreter import interprets
from tpcheck.tensors.ops import is_op, name_of, overload_of, shows_its_kernels
from tpcheck.tensors.reserved import is_sparse
from tpcheck.vocabulary import OpTest

#: Tests that take a millisecond, of every case; that of a compiled op takes fifty.
QUICK = (OpTest.SCHEMA, OpTest.AUTOGRAD, OpTest.FAKE)
#: Of how many seeds one has the other test, too: a case's own, so that it has it again. Cases are
#: shrunk towards seed 0, which is one. More often would take half of a run's time.
EVERY = 4

#: By how much more than a result of the case one of a compiled op may be off: its upstream
#: gradients are ones. A backward that is not compiled as it is written is off by all of itself.
SLACK = 64.0

#: The libraries of torch's own ops.
_TORCHS = {
    "aten", "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "cuda",
    "debugprims", "debug_mode_ops", "_dtensor", "export", "flex_lib", "fsdp", "higher_order",
    "inductor", "_inductor_test", "mkl", "mkldnn", "_native", "onednn", "onnx", "onnx_symbolic",
    "prepacked", "prim", "prims", "profiler", "quantized", "_quantized", "quantized_decomposed",
    "rngprims", "sparse", "static_runtime", "streams", "symm_mem", "xnnpack",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """An op, and what it was given."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def tolerances(self, moved: float) -> dict[str, float]:
        """How far what it gives when it is compiled may be off; `moved` as for `failures`."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)]
        floats = [tensor for tensor in tensors if tensor.is_floating_point()]
        eps = max((torch.finfo(t.dtype).eps for t in floats), default=2.0**-52)
        sizes = [float(t.abs().nan_to_num(0.0, 0.0, 0.0).max()) for t in floats if t.numel()]
        return {"rtol": SLACK * eps, "atol": SLACK * max([moved, *(eps * s for s in sizes), 1e-30])}


class Calls:
    """The first call of each op that is not torch's own, while a block runs: of forwards, and of
    the backwards that are run in `backwards()`."""

    def __init__(self) -> None:
        self.first: dict[OpOverload, Call] = {}

    def forwards(self) -> TorchFunctionMode:
        return _Above(self)

    def backwards(self) -> TorchDispatchMode:
        return _Below(self)

    def note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An op that is about to run."""
        op = overload_of(func) if is_op(func) else None
        if op is not None and op not in self.first and is_of_user(name_of(op)):
            self.first[op] = Call(op, *pytree.tree_map_only(Tensor, _own, (args, kwargs)))


class _Above(TorchFunctionMode):
    """Sees whether what an op is given takes a gradient. Autograd's own functions leave it."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self._calls.note(func, args, kwargs)
        return func(*args, **kwargs)


class _Below(TorchDispatchMode):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self._calls.note(func, args, kwargs)
        return func(*args, **kwargs)


def is_of_user(name: str) -> bool:
    """Whether an op is none of torch's own, by its library."""
    return name.partition("::")[0] not in _TORCHS


def any_of_user() -> bool:
    """Whether any has been registered in Python, in this process."""
    return any(map(is_of_user, list(torch.library._defs)))


def _own(tensor: Tensor) -> Tensor:
    """A leaf of the same numbers, as it is laid out in memory unless that is out of reach; it takes
    a gradient where the op was to give it one."""
    wanted = tensor.requires_grad and torch.is_grad_enabled() and tensor.is_floating_point()
    if is_sparse(tensor):  # opcheck copies all of it
        made = tensor.detach().clone(memory_format=torch.contiguous_format)
    else:
        memory = tensor.detach().untyped_storage().clone()
        about = (tensor.storage_offset(), tensor.shape, tensor.stride())
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(memory, *about)
    return made.requires_grad_(wanted)


def failures(call: Call, *, compiled: bool, moved: float) -> Iterator[Misregistered]:
    """What opcheck finds.

    Args:
        compiled: whether the op is also compiled.
        moved: by how much rounding may move any result of the case.
    """
    wanted = [*QUICK, *[OpTest.AOT_DISPATCH] * compiled]
    if shows_its_kernels(call.op) and interprets():
        # what is interpreted can't be traced: it would run, on tensors without numbers
        wanted = [OpTest.SCHEMA, OpTest.AUTOGRAD]
    found = torch.library.opcheck(
        call.op,
        call.args,
        dict(call.kwargs),
        test_utils=[test.value for test in wanted],
        raise_exception=False,
        **call.tolerances(moved),
    )
    for test in wanted:
        if isinstance(error := found[test.value], BaseException):
            text = " ".join(str(error).split())[:400]
            yield Misregistered(name_of(call.op), test, type(error).__name__, text)
