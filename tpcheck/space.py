"""`Space`: the part of the configuration space that a run asks for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpcheck.case import DTYPES
from tpcheck.errors import InvalidArgument, shown
from tpcheck.given import is_whole


@dataclass(frozen=True)
class Space:
    """What a run asks for: degrees, dtypes, and how many ranks there are.

    Args:
        dims: dim → what it is, in the place of what a strategy says of it (`Spec.dims`).

    Raises:
        InvalidArgument: nothing can be drawn from it.
    """

    degrees: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16")
    ranks: int = 4
    dims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, example in (("degrees", (2, 4)), ("dtypes", ("float64", "bfloat16"))):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)):
                what = f"{name}={shown(given)}"
                raise InvalidArgument(f"{what} is not a tuple, as in {name}={example}")
        if not isinstance(self.dims, Mapping):
            raise InvalidArgument(f"dims={shown(self.dims)} is not an object of name → what")
        for dtype in self.dtypes:
            if dtype not in DTYPES:
                raise InvalidArgument(f"dtype {shown(dtype)} is not one of {', '.join(DTYPES)}")
        for degree in self.degrees:  # first: by default ranks are as many as these need
            if not is_whole(degree, 1):
                raise InvalidArgument(f"tp degree {shown(degree)} is not a positive number")
        if not is_whole(self.ranks, 1):
            raise InvalidArgument(f"ranks={shown(self.ranks)} is not a positive number")
        for degree in self.degrees:
            if degree > self.ranks:
                raise InvalidArgument(
                    f"tp degree {degree} needs {degree} ranks and the engine has {self.ranks}; "
                    f"give --ranks {degree} (pytest: --tpcheck-ranks) or a smaller degree"
                )
        if not self.degrees or not self.dtypes:
            raise InvalidArgument("no degree, or no dtype, is left to draw from")

    def meshes(self) -> list[dict[str, int]]:
        """Meshes in order of size: each degree alone, and under a dp axis where ranks allow."""
        return self.meshes_of({}) + self.meshes_of({"dp": (2,)})

    def meshes_of(self, axes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
        """Meshes of `axes` (name → sizes that it may have, outermost first) with tp innermost, in
        order of size; none where they need more ranks than there are."""
        sizes = [*axes.values(), sorted(self.degrees)]
        found = [dict(zip([*axes, "tp"], mesh, strict=True)) for mesh in itertools.product(*sizes)]
        found = [mesh for mesh in found if math.prod(mesh.values()) <= self.ranks]
        return sorted(found, key=lambda mesh: math.prod(mesh.values()))
