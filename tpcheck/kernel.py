"""`kernel_check`: a function of tensors as the subject of a check, with neither model nor layout.

gelu = tpcheck.kernel_check(
    bias_gelu,
    reference=lambda x, bias: F.gelu(x + bias, approximate="tanh"),
    arguments={"x": Argument("rows", "width"), "bias": Argument("width")},
)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpcheck.case import FAMILIES, MEMORY_FORMATS, Case
from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.given import demand, is_name, require_some
from tpcheck.placement import Layout
from tpcheck.spec import Check, Kernel, Spec

if TYPE_CHECKING:
    from torch import Tensor

Size = str | int
#: Before an output's name: its upstream gradient.
UPSTREAM = "d "


@dataclass(frozen=True, init=False)
class Argument:
    """A tensor that a kernel is given.

    Args:
        shape: of each dim its size, or the name of a size that cases draw.
        integers: (low, high) of an integer tensor (int64): low included, high not; each a number
            or the name of a size. A float one by default, which takes a gradient.
    """

    shape: tuple[Size, ...]
    integers: tuple[Size, Size] | None = None

    def __init__(self, *shape: Size, integers: tuple[Size, Size] | None = None) -> None:
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "integers", integers)
        sizes = isinstance(integers, tuple) and len(integers) == 2 and all(map(_is_size, integers))
        demand(self, "shape", all(map(_is_size, shape)), "sizes, or names of sizes")
        demand(self, "integers", integers is None or sizes, "two sizes, or names of sizes")

    @property
    def names(self) -> set[str]:
        """Of the sizes that it needs."""
        return {size for size in (*self.shape, *(self.integers or ())) if isinstance(size, str)}

    def draw(self, name: str, case: Case, draw: Any) -> Tensor:
        """Its numbers in a case."""
        shape = [_of(case, size) for size in self.shape]
        if self.integers is None:
            return draw(name, *shape)
        low, high = (_of(case, size) for size in self.integers)
        return draw.integers(name, low, high, *shape)


def kernel_check(
    fn: Callable[..., Any],
    *,
    reference: Callable[..., Any],
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, Any] | None = None,
    overwrites: tuple[str, ...] = (),
    memory: Sequence[str] = MEMORY_FORMATS,
    families: Sequence[str] = FAMILIES,
    opcheck: bool = True,
    name: str = "",
) -> Check:
    """The check of a function of tensors, on one rank: a process of its own that may die.

    Each case draws sizes, a dtype, and of every argument and upstream gradient how it is laid out
    in memory. Outputs and gradients are compared with the reference's. Besides, inputs and upstream
    gradients must not change, nor the memory beside them; run again it must give the same bits, and
    so must a second backward. Under Triton's interpreter each load and store is held against the
    tensors of its launch, and the programs of a launch against one another.

    Args:
        fn: (tensors, in the order of `arguments`) → a tensor, a tuple, or a dict of tensors.
        reference: the same function in plain torch; it is run in float64.
        arguments: name → what it is.
        sizes: name of a size → a Hypothesis strategy of it, a number, or a function of the sizes so
            far. By default 0 to 5 for the first dim of more than one, and for others what lies
            around powers of two up to 64.
        overwrites: arguments that the function may change, and upstream gradients, as "d output".
            None is expanded in memory then.
        memory: how tensors may be laid out, of `case.MEMORY_FORMATS`; what a kernel refuses is left
            out.
        families: what numbers may be like, of `case.FAMILIES`.
        opcheck: whether ops of `torch.library` that the function is, or calls, go through
            `torch.library.opcheck`.
        name: shown in reports; by default the name of the variable that holds the check.

    Raises:
        InvalidArgument: an argument is no `Argument`, `overwrites` names none, or a format or a
            family is not known.
    """
    if not callable(fn) or not callable(reference):
        raise InvalidArgument("kernel_check(fn, reference=…): give two functions of tensors")
    for key, argument in arguments.items():
        if not is_name(key) or not isinstance(argument, Argument):
            raise InvalidArgument(
                f"kernel_check(arguments={{{shown(key)}: {shown(argument)}}}): give names of "
                "arguments, and tpcheck.Argument(…) of each"
            )
    for key in overwrites:
        if key not in arguments and not str(key).startswith(UPSTREAM):
            hint = did_you_mean(str(key), arguments)
            raise InvalidArgument(f"kernel_check(overwrites=…) names {shown(key)}{hint}")
    require_some("memory", memory, MEMORY_FORMATS)
    require_some("families", families, FAMILIES)
    shared = ("expanded", "mixed") if overwrites else ()  # its elements are not all its own
    formats = [one for one in memory if one not in shared] or ["contiguous"]
    title = name or _name_of(fn)
    spec = Spec(
        name=title,
        cases=lambda space: _cases(space, arguments, sizes or {}, formats, families),
        reference=lambda case: reference,
        inputs=lambda case, draw: {k: a.draw(k, case, draw) for k, a in arguments.items()},
        layout=lambda case: Layout(),
        degrees=(1,),
    )
    rules = Kernel(tuple(overwrites), opcheck=opcheck)
    return Check(spec, Subject(fn), name=name, kernel=rules)


@dataclass(frozen=True, eq=False)
class Subject:
    """The candidate of a kernel: the function itself."""

    fn: Callable[..., Any]

    def __call__(self, case: Case, mesh: Any) -> Callable[..., Any]:
        return self.fn


def _name_of(fn: Any) -> str:
    """Of a function, or of an op of `torch.library` (`library::op`)."""
    return str(getattr(fn, "_qualname", None) or getattr(fn, "__name__", "kernel"))


def _cases(
    space: Any,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, Any],
    formats: Sequence[str],
    families: Sequence[str],
) -> Any:
    from tpcheck import strategies

    needed = sorted({name for argument in arguments.values() for name in argument.names})
    for name in sizes:
        if name not in needed:
            raise InvalidArgument(f"kernel_check(sizes=…){did_you_mean(str(name), needed)}")
    rows = _rows(arguments)
    default = {n: strategies.counts() if n in rows else strategies.widths() for n in needed}
    return strategies.kernel_cases(space, {**default, **sizes}, formats, families)


def _rows(arguments: Mapping[str, Argument]) -> set[Size]:
    """The sizes that are never a last dim: rows, heads and the like."""
    last = {argument.shape[-1] for argument in arguments.values() if argument.shape}
    return {size for a in arguments.values() for size in a.shape if size not in last}


def _is_size(size: object) -> bool:
    number = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return number or is_name(size)


def _of(case: Case, size: Size) -> int:
    return int(case[size]) if isinstance(size, str) else size
