"""That what a check names is in its cases."""

from __future__ import annotations

from tpcheck.discipline import Kernel
from tpcheck.errors import InvalidArgument, did_you_mean, listed, shown
from tpcheck.oracle.pose import Posed
from tpcheck.spec import Spec
from tpcheck.tensors.names import UPSTREAM


def require_outputs(rules: Kernel | None, posed: Posed) -> None:
    """That a kernel is said to overwrite upstream gradients of outputs that there are."""
    for name in rules.overwrites if rules else ():
        if name not in posed.inputs and name.removeprefix(UPSTREAM) not in posed.outputs:
            raise InvalidArgument(
                f"overwrites= names {shown(name)}: give names of arguments, or of "
                f"{listed(UPSTREAM + output for output in posed.outputs)}"
            )


def require_tensors(spec: Spec, posed: Posed) -> None:
    """That a spec names tensors that there are."""
    known = [*posed.inputs, *posed.outputs, *(UPSTREAM + output for output in posed.outputs)]
    for name in spec.overwrites:
        if name not in known:
            raise InvalidArgument(
                f"spec {spec.name!r}: overwrites= names {shown(name)}: give names of "
                f"{listed(known)}"
            )
    for name in spec.constants:
        if name not in posed.inputs:
            raise InvalidArgument(
                f"spec {spec.name!r}: constants= names {shown(name)}, which is no input"
                f"{did_you_mean(name, posed.inputs)}"
            )
