"""Refuses what a spec gives, or its reference returns, in a form that can't be compared."""

from __future__ import annotations

import torch
from torch import Tensor

from tpcheck.errors import InvalidArgument
from tpcheck.spec import Spec
from tpcheck.tensors.forms import FLOATS, dtype_name, odd


def check_form(spec: Spec, what: str, name: str, tensor: Tensor) -> None:
    """Refuses a tensor that can't be compared as what it is.

    Raises:
        InvalidArgument: it is complex, float8, quantized, sparse, nested, meta, or a wrapper.
    """
    form = odd(tensor)
    if form is None:
        return
    floats = ", ".join(map(dtype_name, FLOATS))
    raise InvalidArgument(
        f"spec {spec.name!r}: the {what} {name!r} is {form}; what is compared is dense: {floats}, "
        f"integers or bools{_remedy(tensor)}"
    )


def _remedy(tensor: Tensor) -> str:
    if tensor.layout == torch.strided and tensor.is_complex():
        return "; give its two parts, as torch.view_as_real does"
    return ""
