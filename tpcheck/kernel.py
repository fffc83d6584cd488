"""`kernel_check`: a function of tensors as the subject of a check, with neither model nor layout.

gelu = tpcheck.kernel_check(
    bias_gelu,
    reference=lambda x, bias: F.gelu(x + bias, approximate="tanh"),
    arguments={"x": Argument("rows", "width"), "bias": Argument("width")},
)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tpcheck.argument import Argument, Size, can_be_drawn, require_taken
from tpcheck.case import DTYPES, FAMILIES, MEMORY_FORMATS, Case
from tpcheck.check import Check
from tpcheck.discipline import Kernel
from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.given import is_name, is_whole, require_some
from tpcheck.layout import Layout
from tpcheck.spec import Spec, values_of
from tpcheck.tensors.names import UPSTREAM

if TYPE_CHECKING:
    from torch import Tensor

    from tpcheck.check import Witness

#: Elements, at most, of a tensor of all sizes that are drawn by default: Triton's interpreter takes
#: a millisecond for a program, and a case's calls come ten at a time.
MOST = 2**16


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
    options: Mapping[str, Any] | None = None,
    dtypes: Sequence[str] | None = None,
    degrees: tuple[int, ...] = (1,),
    layout: Layout | None = None,
    rounding: Callable[..., Any] | None = None,
    witness: Witness | None = None,
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
        sizes: name of a size → a Hypothesis strategy of it, a number, a list of numbers, or a
            function of the sizes so far. By default 0 to 5 for the first dim of more than one, and
            for others what lies around powers of two up to 64.
        overwrites: arguments that the function may change, and upstream gradients, as "d output".
            None is expanded in memory then, or two the same tensor.
        memory: how tensors may be laid out, of `case.MEMORY_FORMATS`; what a kernel refuses is left
            out.
        families: what numbers may be like, of `case.FAMILIES`.
        opcheck: whether ops of `torch.library` that the function is, or calls, go through
            `torch.library.opcheck`.
        options: keyword argument of function and reference → what it is, as in `sizes`: a strategy,
            a number, flag or text, a list of these, or a function of the sizes so far.
        dtypes: those that it is for. A run draws those that it asks for among them, and all of them
            where it asks for none of them. None, where it may have any: of those that the run asks
            for float64 is left out unless it is the only one, since kernels mostly compute in
            float32.
        degrees: on how many ranks a function may run that communicates, over the default group; a
            run asks for some of them. A size may be a function of `sizes["tp"]` then, as
            `strategies.multiples("tp")` is.
        layout: what part of each of `inputs` and `outputs` a rank has then.
        rounding: the reference's function by the kernel's own formula, in plain torch, where that
            is less exact than torch's (a variance as E[x²] − E[x]², say): bounds are measured on
            it. In float64 it must agree with the reference.
        witness: case → (phase, name) → how often it must run, as `Check` takes it: the name of a
            Triton kernel shows that the function launches it, and does not fall back to torch.
        name: shown in reports; by default the name of the variable that holds the check.

    Raises:
        InvalidArgument: an argument is no `Argument`, `overwrites` names none, or a format or a
            family is not known. A size that is not whole, an integer that its dtype does not hold,
            or an upstream gradient of no output makes the check UNKNOWN.
    """
    _require_functions(fn, reference, rounding)
    for key, given_sizes in {"arguments": arguments, "sizes": sizes, "options": options}.items():
        _require_mapping(key, {} if given_sizes is None and key != "arguments" else given_sizes)
    _require_arguments(arguments, overwrites)
    _require_known(memory, families, dtypes)
    _require(name, opcheck, degrees, layout, witness)
    names = list(arguments)
    constants = tuple(i for i, key in enumerate(names) if not arguments[key].gradient)
    # of elements that are not all its own, or not its alone, nothing may be changed; and one tensor
    # can't take a gradient and take none, or have several placements
    shared = {"expanded", "mixed", "aliased"} if overwrites else set()
    shared |= {"aliased"} if constants or layout else set()
    formats = [one for one in memory if one not in shared] or ["contiguous"]
    drawn = {**(sizes or {}), **(options or {})}  # after those by default, in their own order
    _known_sizes(arguments, sizes or {}, options or {})
    require_taken(arguments, options or {}, fn=fn, reference=reference, rounding=rounding)

    def given(function: Callable[..., Any]) -> Callable[[Case], Callable[..., Any]]:
        return lambda case: Subject(function, tuple(options or ()), constants)(case, None)

    spec = Spec(
        name=name or _name_of(fn),
        cases=lambda space: _cases(space, arguments, drawn, formats, families, degrees),
        reference=given(reference),
        inputs=lambda case, draw: {k: a.draw(k, case, draw) for k, a in arguments.items()},
        layout=lambda case: layout or Layout(),
        degrees=degrees if degrees == (1,) else (),
        dims={key: how for key, how in drawn.items() if values_of(how)},
        dtypes=tuple(dtypes or ()),
        only_alone=("float64",) if dtypes is None else (),
        rounding=None if rounding is None else given(rounding),
    )
    rules = Kernel(
        tuple(overwrites),
        tuple(names[i] for i in constants),
        opcheck,
        tuple(name for name in _names(arguments) if name not in drawn),
        memory=tuple(formats),
        families=tuple(families),
        degrees=degrees,
    )
    return Check(spec, Subject(fn, tuple(options or ())), name=name, kernel=rules, witness=witness)


@dataclass(frozen=True, eq=False)
class Subject:
    """The candidate of a kernel: the function itself, with what the case draws for it.

    Args:
        options: names of the case's dims that it is given by keyword.
        constants: places of tensors that it is given detached.
    """

    fn: Callable[..., Any]
    options: tuple[str, ...] = ()
    constants: tuple[int, ...] = ()

    def __call__(self, case: Case, mesh: Any) -> Callable[..., Any]:
        if not self.options and not self.constants:
            return self.fn
        return partial(self._call, **{name: case[name] for name in self.options})

    def _call(self, *tensors: Tensor, **options: Any) -> Any:
        given = (t.detach() if i in self.constants else t for i, t in enumerate(tensors))
        return self.fn(*given, **options)


def _name_of(fn: Any) -> str:
    """Of a function, or of an op of `torch.library` (`library::op`)."""
    return str(getattr(fn, "_qualname", None) or getattr(fn, "__name__", "kernel"))


def _cases(
    space: Any,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, Any],
    formats: Sequence[str],
    families: Sequence[str],
    degrees: tuple[int, ...],
) -> Any:
    from tpcheck import strategies

    rows, needed = _rows(arguments), _names(arguments)
    some = {size for a in arguments.values() for size in a.integers or ()}  # indices need one
    counts = {n: strategies.counts(least=int(n in some)) for n in rows if isinstance(n, str)}
    default = {n: counts.get(n, strategies.widths()) for n in needed}
    own = degrees if degrees == (1,) else [d for d in space.degrees if d in degrees]
    free = [name for name in default if name not in sizes]
    return strategies.kernel_cases(
        space,
        {**{name: default[name] for name in free}, **sizes},
        formats,
        families,
        own,
        lambda dims: math.prod(max(1, dims[name]) for name in free) <= MOST,
    )


def _require_functions(fn: Any, reference: Any, rounding: Any) -> None:
    if type(fn).__module__.partition(".")[0] == "triton":
        raise InvalidArgument(
            f"kernel_check(fn=…) was given {type(fn).__name__} {_name_of(fn)}, which Triton "
            "launches: give the function of tensors that launches it and returns its output"
        )
    for one in (fn, reference):
        if not callable(one) or isinstance(one, type) or hasattr(one, "named_parameters"):
            raise InvalidArgument(
                f"kernel_check(fn, reference=…) was given {shown(one)}: give two functions of "
                "tensors; a module is a candidate of tpcheck.Check"
            )
    if rounding is not None and not callable(rounding):
        raise InvalidArgument("kernel_check(rounding=…): give a function of the same tensors")


def _require_arguments(arguments: Mapping[str, Argument], overwrites: Any) -> None:
    for key, argument in arguments.items():
        if not is_name(key) or not isinstance(argument, Argument):
            raise InvalidArgument(
                f"kernel_check(arguments={{{shown(key)}: {shown(argument)}}}): give names of "
                "arguments, and tpcheck.Argument(…) of each"
            )
    if not isinstance(overwrites, (tuple, list)):
        raise InvalidArgument(
            f"kernel_check(overwrites={shown(overwrites)}): give a tuple of names of arguments"
        )
    for key in overwrites:
        if not isinstance(key, str) or not (key in arguments or key.startswith(UPSTREAM)):
            hint = did_you_mean(key, arguments) if isinstance(key, str) else ": give names"
            raise InvalidArgument(f"kernel_check(overwrites=…) names {shown(key)}{hint}")


def _require_known(
    memory: Sequence[str], families: Sequence[str], dtypes: Sequence[str] | None
) -> None:
    require_some("memory", memory, MEMORY_FORMATS)
    require_some("families", families, FAMILIES)
    if dtypes is not None:
        require_some("dtypes", dtypes, DTYPES)


def _require(
    name: object, opcheck: object, degrees: object, layout: object, witness: object
) -> None:
    if not (witness is None or callable(witness)):
        raise InvalidArgument(
            f"kernel_check(witness={shown(witness)}): give a function of the case, or None"
        )
    if not isinstance(name, str):
        raise InvalidArgument(f"kernel_check(name={shown(name)}): give a text")
    if not isinstance(opcheck, bool):
        raise InvalidArgument(f"kernel_check(opcheck={shown(opcheck)}): give a flag")
    if not (isinstance(degrees, tuple) and degrees and all(is_whole(d, 1) for d in degrees)):
        raise InvalidArgument(f"kernel_check(degrees={shown(degrees)}): give a tuple of TP degrees")
    if layout is not None and not isinstance(layout, Layout):
        raise InvalidArgument(f"kernel_check(layout={shown(layout)}): give a tpcheck.Layout")
    if layout is not None and degrees == (1,):
        raise InvalidArgument("kernel_check(layout=…) is for several ranks: give degrees=, too")


def _require_mapping(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"kernel_check({what}={shown(given)}): give an object of name → what")


def _known_sizes(
    arguments: Mapping[str, Argument], sizes: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    needed = _names(arguments)
    for name in options:
        if not is_name(name) or name in (*needed, *arguments, "tp"):
            raise InvalidArgument(
                f"kernel_check(options=…) names {shown(name)}: give keyword arguments of the "
                "function, which are neither tensors nor sizes"
            )
    for name in sizes:
        if name not in needed:
            hint = did_you_mean(str(name), needed)
            raise InvalidArgument(f"kernel_check(sizes=…) names {shown(name)}{hint}")
    for what, drawn in {"sizes": sizes, "options": options}.items():
        for name, how in drawn.items():
            if not can_be_drawn(how):
                raise InvalidArgument(
                    f"kernel_check({what}=…) has {name}={shown(how)}: give a Hypothesis strategy, "
                    "a number, flag or text, a list of these, or a function of the sizes so far"
                )


def _names(arguments: Mapping[str, Argument]) -> list[str]:
    """Of all sizes that they need."""
    return sorted({name for argument in arguments.values() for name in argument.names})


def _rows(arguments: Mapping[str, Argument]) -> set[Size]:
    """The sizes that are never a last dim: rows, heads and the like."""
    last = {argument.shape[-1] for argument in arguments.values() if argument.shape}
    return {size for a in arguments.values() for size in a.shape if size not in last}
