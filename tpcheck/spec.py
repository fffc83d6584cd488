"""`Spec`: what a candidate must satisfy.

Users hand over plain callables; nobody subclasses anything.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpcheck.case import DTYPES, MODEL_FORMATS, MODES, Case, Dim
from tpcheck.errors import InvalidArgument, let_through, listed, shown
from tpcheck.given import A_NAME, are_modules, demand, demand_callables, is_name, is_whole
from tpcheck.layout import Layout
from tpcheck.norm import Norm
from tpcheck.training import Training

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from tpcheck.budget import Budget
    from tpcheck.space import Space

    Reference = Callable[..., Any]

DP_GRADIENTS = ("local", "mean", "sum")
#: The modes in which parameters take no gradient.
FROZEN = ("frozen", "all-frozen")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # ".x", or a module without a spec
        return package in sys.modules


def values_of(how: object) -> tuple[Any, ...]:
    """The values of a dim that is a value, or a list of them; none of anything that draws."""
    if isinstance(how, (list, tuple)):
        return tuple(how)
    return (how,) if isinstance(how, Dim) else ()


def outside(name: str, has: object, allowed: Sequence[object]) -> str:
    """`memory=expanded, which is not one of contiguous, sliced`."""
    return f"{name}={has}, which is not one of {listed(map(str, allowed))}"


def _is_drawn(how: object) -> bool:
    """Whether a dim can be drawn by it: a strategy is told by what Hypothesis asks of it, which
    ranks need not load."""
    return bool(values_of(how)) or callable(how) or hasattr(how, "do_draw")


@dataclass(frozen=True)
class Spec:
    """What a candidate must satisfy, independent of any candidate.

    Args:
        name: shown in reports.
        cases: space → a Hypothesis strategy of `Case`s (see `tpcheck.strategies`), called in the
            driver only; or a list of cases.
        reference: case → the unsharded `nn.Module`, or a plain function. None where a `Relation` is
            to have another candidate in its place.
        inputs: (case, draw) → name → full tensor. `draw(name, *shape)` gives normal numbers from
            the case's seed, `draw.integers(name, low, high, *shape)` integers. Float inputs get
            gradients.
        layout: case → `Layout`. Parameters that the candidate holds as DTensors may be left out.
        forward: (module, inputs) → outputs; by default `module(*inputs.values())`. Outputs are a
            tensor, a tuple, or a dict of tensors. Runs for reference and candidate alike.
        init: (name, shape, draw) → a full parameter or buffer, or None for the harness's own draw;
            not of buffers that no checkpoint holds (`persistent=False`), which are computed.
        finalize: (module, mesh) → None, run on every rank after the last backward: what the
            framework does before gradients are read (Megatron's finalize step, say).
        budget: case → `Budget`: what a microbatch may communicate; None allows anything.
        requires: case → None, or a line that says why the case can't be (heads by degree, …).
        preload: modules that the ranks import once, before they are forked (heavy libraries).
            Where one is not installed the check can't run, and is shown as skipped.
        dp_gradients: what a parameter's gradient is where the mesh has a "dp" axis, each
            coordinate of which has data of its own: "local", that of its own data; or the "mean"
            or "sum" over the coordinates, as FSDP and DDP leave it. Parameters are then the same
            on every coordinate after a step, and are compared across them.
        unavailable: () → None, or a line that says why nothing of it can run here.
        linear: whether every output and gradient is a sum of products of the drawn numbers, with
            no other factor. Part of the cases are then drawn as integers, and must be exact.
        degrees: the TP degrees that it has, whatever a run asks for; empty for any.
        rounding: case → the reference's function by another formula, the candidate's own, where
            that is less exact: bounds are measured on it, values still on the reference. A module
            has parameters of the same names.
        norm: the norm of all gradients, which is compared, and by which they are clipped before a
            step (`tpcheck.Norm`); every case then has a step. None: neither.
        training: steps of an optimizer, with microbatches of their own (`tpcheck.Training`), in
            place of the single one of plain SGD that part of the cases have. None: that one.
        overwrites: inputs, outputs and upstream gradients ("d output") that a candidate may change.
            Such an input is handed to it as a tensor that is not a leaf.
        constants: inputs that are given as `inputs` returns them, in the case's dtype: a mask of
            floats, a table. They take no gradient, are contiguous, and not made larger or smaller
            with `Case.magnitude`.
        memory: the memory formats that inputs and upstream gradients may have, of
            `tpcheck.case.MODEL_FORMATS`; a case that is drawn in another one has the first of
            them. Empty for all that `cases` draws.
        modes: what half of the cases have, besides training of everything: any of
            `tpcheck.case.MODES`.
        dims: dim → what it is, in the place of what `cases` says of it: a value, a list of values,
            the dullest first, a strategy, or a function of the dims drawn so far. For specs whose
            `cases` are drawn by `tpcheck.strategies.cases`, as those of all ready ones are.
        dtypes: those that it has. A run draws those that it asks for among them, and all of them
            where it asks for none of them; empty for any.
        only_alone: dtypes that a run draws where it asks for no others.
    """

    name: str
    cases: Callable[[Space], Any] | Sequence[Case]
    reference: Callable[[Case], Reference] | None
    inputs: Callable[[Case, Any], Mapping[str, Tensor]]
    layout: Callable[[Case], Layout]
    forward: Callable[[Any, Mapping[str, Tensor]], Any] | None = None
    init: Callable[[str, tuple[int, ...], Any], Tensor | None] | None = None
    finalize: Callable[[Any, DeviceMesh], None] | None = None
    budget: Callable[[Case], Budget] | None = None
    requires: Callable[[Case], str | None] | None = None
    preload: tuple[str, ...] = ()
    dp_gradients: str = "local"
    unavailable: Callable[[], str | None] | None = None
    linear: bool = False
    degrees: tuple[int, ...] = ()
    rounding: Callable[[Case], Reference] | None = None
    norm: Norm | None = None
    training: Training | None = None
    overwrites: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    dims: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    only_alone: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        demand(self, "name", is_name(self.name), A_NAME)
        listed = isinstance(self.cases, (list, tuple)) and len(self.cases) > 0
        listed = listed and all(isinstance(case, Case) for case in self.cases)  # type: ignore[union-attr]
        what = "a function space -> strategy, or a list of cases"
        demand(self, "cases", callable(self.cases) or listed, what)
        demand_callables(self, "inputs", "layout")
        optional = "reference forward init finalize budget requires unavailable rounding"
        demand_callables(self, *optional.split(), optional=True)
        demand(self, "preload", are_modules(self.preload), "a tuple of names of modules")
        demand(self, "linear", isinstance(self.linear, bool), "True or False")
        degrees = isinstance(self.degrees, tuple) and all(is_whole(d, 1) for d in self.degrees)
        demand(self, "degrees", degrees, "a tuple of TP degrees")
        norm = self.norm is None or isinstance(self.norm, Norm)
        demand(self, "norm", norm, "a Norm, as in Norm(order=2.0), or None")
        training = self.training is None or isinstance(self.training, Training)
        demand(self, "training", training, "a Training, as in Training(adamw, steps=2), or None")
        for name in ("overwrites", "constants"):
            names = isinstance(given := getattr(self, name), tuple) and all(map(is_name, given))
            demand(self, name, names, "a tuple of names of tensors")
        choices = {"modes": MODES[1:], "memory": MODEL_FORMATS, "dtypes": DTYPES}
        for name, known in {**choices, "only_alone": DTYPES}.items():
            some = isinstance(given := getattr(self, name), tuple) and all(
                one in known for one in given
            )
            some = some and len(set(given)) == len(given)
            demand(self, name, some, f"a tuple of {', '.join(known)}")
        self._require_dims(listed)
        if self.linear and self.constants:
            raise InvalidArgument(
                f"Spec(constants=…) of {self.name!r}: with linear=True every factor is drawn, "
                "small integers in part of the cases; leave one of them out"
            )
        if self.dp_gradients not in DP_GRADIENTS:
            given = shown(self.dp_gradients)
            allowed = ", ".join(DP_GRADIENTS)
            raise InvalidArgument(f"Spec(dp_gradients={given}) is not one of {allowed}")

    def _require_dims(self, listed: bool) -> None:
        named = isinstance(self.dims, Mapping) and all(map(is_name, self.dims))
        what = "a mapping of dims to a value, a list of values, a strategy or a function of dims"
        demand(self, "dims", named and all(map(_is_drawn, self.dims.values())), what)
        for name in ("dims", "dtypes"):
            if listed and getattr(self, name):
                raise InvalidArgument(
                    f"Spec({name}=…) of {self.name!r}: its cases are a list, which says that "
                    "itself; take cases out of the list"
                )

    @property
    def shares_gradients(self) -> bool:
        """Whether gradients are the same on all coordinates of a dp axis."""
        return self.dp_gradients != "local"

    @property
    def usual_modes(self) -> tuple[str, ...]:
        """Those of its modes that its cases may have: a norm, an optimizer, and what makes
        gradients whole may take all of them for granted."""
        whole = any(part is not None for part in (self.norm, self.training, self.finalize))
        return tuple(mode for mode in self.modes if not (whole and mode in FROZEN))

    def asked(self, dtypes: Sequence[str]) -> tuple[str, ...]:
        """Those of its dtypes that a run draws which asks for these."""
        own = tuple(d for d in dtypes if d in self.dtypes) or self.dtypes or tuple(dtypes)
        return tuple(d for d in own if d not in self.only_alone) or own

    def lacks(self, case: Case) -> str | None:
        """What of a case is not as `dims` and `dtypes` say, or None."""
        for name, how in self.dims.items():
            if name.startswith("_"):
                continue
            values = values_of(how)
            if name not in case.dims:
                return f"no dim {name!r}"
            if values and case[name] not in values:
                return outside(name, case[name], values)
        if self.dtypes and case.dtype not in self.dtypes:
            return outside("dtype", case.dtype, self.dtypes)
        return None

    def cannot_run(self) -> str | None:
        """Why nothing of this spec can run here, or None.

        Raises:
            InvalidArgument: `unavailable` raises, or returns something else.
        """
        for name in self.preload:
            package = name.partition(".")[0]
            if not _is_installed(package):
                return f"needs the package {package}, which is not installed"
        if self.unavailable is None:
            return None
        try:
            reason = self.unavailable()
        except BaseException as error:
            let_through(error)
            said = f"raised {type(error).__name__}: {error}"
        else:
            if reason is None or isinstance(reason, str):
                return reason
            said = f"returned a {type(reason).__name__}, not a line that says why, nor None"
        raise InvalidArgument(f"spec {self.name!r}: unavailable {said}")
