"""`Case`: one point of the configuration space.

A case alone determines every number that is drawn for it: it is frozen, goes to JSON and back
without loss, and its identity is a digest of that JSON. This module imports no torch, so that
strategies and the command line can handle cases cheaply.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from tpcheck.errors import CaseError, did_you_mean, shown

Dim = int | float | bool | str

DTYPES = ("float64", "float32", "bfloat16", "float16")
#: Those of a model's inputs; kernels have more.
MODEL_FORMATS = ("contiguous", "transposed", "sliced", "offset", "expanded")
MEMORY_FORMATS = (*MODEL_FORMATS, "padded", "permuted", "giant", "mixed", "aliased")
#: What inputs are like.
FAMILIES = ("normal", "shifted", "equal", "outlier", "zeros", "one-hot", "subnormal", "infinite")
#: Which gradients are asked for.
GRADIENTS = ("all", "some", "none")
#: What is done with a model: "train" all of it, or one of the others.
MODES = ("train", "eval", "frozen", "all-frozen", "constant", "inference")
_FORMATS = {"dtype": DTYPES, "memory": MEMORY_FORMATS, "family": FAMILIES, "gradients": GRADIENTS}
_FORMATS["mode"] = MODES
#: Fields that came later; cases saved before there were such keep their ids.
_LATER = {
    "family": "normal",
    "integers": False,
    "gradients": "all",
    "mode": "train",
    "saved_at": 0,
}
#: What is not told of a case.
_DULL = {"microbatches": 1, "step": False, "memory": "contiguous", "magnitude": 0, **_LATER}
#: 2 ** ±1000 is still a number of float64. If it were larger, inputs would be infinite or zero in
#: every dtype, and nothing would be judged; smaller, and cases saved before would be refused.
LARGEST_MAGNITUDE = 1000

#: torch's generators take seeds below it.
BEYOND_SEEDS = 2**64

#: Sizes are torch's, of 64 bits; a larger one could not be one of a tensor.
BEYOND_INTEGERS = 2**63

#: Each is drawn, and walked by the reference, a few dozen times. With more, a case that no one
#: means (in a file that was edited) takes all memory before a rank starts.
MOST_MICROBATCHES = 1024

#: With more, an absurd mesh takes minutes to be refused: a layout lists its ranks before that.
MOST_RANKS = 4096

#: Characters of a dim's name and of its text. Both are shown in one line; longer ones fill the
#: terminal.
LONGEST_TEXT = 1000
_A_NAME = f"give a text of 1 to {LONGEST_TEXT} characters"


@dataclass(frozen=True, eq=False)
class Case:
    """One configuration: `case["in_features"]` reads a dim, the rest are fields.

    Args:
        dims: sizes, head counts and flags, as the spec's strategy named them.
        dtype: one of `DTYPES`; parameters, inputs and cotangents are rounded to it.
        mesh: axis name → size, outermost first; `{"dp": 2, "tp": 4}` needs 8 ranks.
        seed: every tensor is drawn from it and from the tensor's name.
        microbatches: forward and backward passes, each on its own data, before gradients are read.
        step: afterwards take one SGD step, compare the parameters and one more forward.
        memory: how inputs and cotangents are laid out in memory; one of `MEMORY_FORMATS`. "mixed"
            is another one for each tensor, by its name and the seed; "aliased" arguments of one
            shape are one tensor (`tensors/leaves`).
        magnitude: log2 of the input scale: inputs are multiplied by 2 ** magnitude.
        family: what inputs are like; one of `FAMILIES` (`tensors/families`).
        integers: everything is drawn as small integers, so that sums are exact
            (`bounds/integers`).
        gradients: which are asked for: those of "all" inputs, from all outputs, or of and from
            "some", by their names and the seed, or "none", as in inference.
        mode: one of `MODES`: the module is in "eval" mode; about half of its parameters are
            "frozen", by their names and the seed, or all; inputs are "constant", which take no
            gradient; or a forward of "inference" comes before each pass (`tensors/case_mode`).
        saved_at: TP degree of the ranks that have saved what these load, where the check saves; 0
            for their own.
    """

    dims: Mapping[str, Dim] = field(default_factory=dict)
    dtype: str = "float64"
    mesh: Mapping[str, int] = field(default_factory=lambda: {"tp": 2})
    seed: int = 0
    microbatches: int = 1
    step: bool = False
    memory: str = "contiguous"
    magnitude: int = 0
    family: str = "normal"
    integers: bool = False
    gradients: str = "all"
    mode: str = "train"
    saved_at: int = 0

    def __post_init__(self) -> None:
        for name in ("dims", "mesh"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise CaseError(f"case.{name} is {shown(given)}, not an object of name → size")
            object.__setattr__(self, name, MappingProxyType(dict(given)))
        self._validate_dims()
        self._validate_formats()
        self._validate_mesh()
        self._validate_numbers()
        self._validate_flags()

    def _validate_dims(self) -> None:
        for name, value in self.dims.items():
            if not _is_name(name):
                raise CaseError(f"case.dims has the name {shown(name)}: {_A_NAME}")
            if not isinstance(value, (int, float, bool, str)):
                what = "a number, flag or string"
            elif isinstance(value, str) and len(value) > LONGEST_TEXT:
                what = f"a text of at most {LONGEST_TEXT} characters"
            elif isinstance(value, int) and abs(value) >= BEYOND_INTEGERS:
                what = "within ±2**63"
            elif isinstance(value, float) and not math.isfinite(value):
                what = "a finite number"
            else:
                continue
            raise CaseError(f"case.dims[{name!r}]={shown(value)} is not {what}")

    def _validate_formats(self) -> None:
        for name, known in _FORMATS.items():
            given = getattr(self, name)
            if not isinstance(given, str) or given not in known:
                raise CaseError(f"case.{name}={shown(given)} is not one of {', '.join(known)}")

    def _validate_mesh(self) -> None:
        for name, size in self.mesh.items():
            if not _is_name(name):
                raise CaseError(f"case.mesh has the axis {shown(name)}: {_A_NAME}")
            if not _is_int(size) or size < 1:
                raise CaseError(
                    f"case.mesh[{name!r}]={shown(size)} is not a positive number of ranks"
                )
        if "tp" not in self.mesh:
            raise CaseError(f"case.mesh={shown(dict(self.mesh))} has no 'tp' axis; give it one")
        if self.world_size > MOST_RANKS:
            given = shown(dict(self.mesh))
            raise CaseError(f"case.mesh={given} needs more than {MOST_RANKS} ranks")
        if not _is_int(self.saved_at) or self.saved_at < 0:
            what = "a TP degree, nor 0 for that of the case"
            raise CaseError(f"case.saved_at={shown(self.saved_at)} is not {what}")
        _ = self.when_saved  # which must be a case, too

    def _validate_numbers(self) -> None:
        if not _is_int(self.microbatches) or not 1 <= self.microbatches <= MOST_MICROBATCHES:
            what = f"a positive integer of at most {MOST_MICROBATCHES}"
            raise CaseError(f"case.microbatches={shown(self.microbatches)} is not {what}")
        if not _is_int(self.seed) or not 0 <= self.seed < BEYOND_SEEDS:
            what = "a non-negative integer below 2**64"
            raise CaseError(f"case.seed={shown(self.seed)} is not {what}")
        if not _is_int(self.magnitude) or abs(self.magnitude) > LARGEST_MAGNITUDE:
            limits = f"an integer within ±{LARGEST_MAGNITUDE}"
            raise CaseError(f"case.magnitude={shown(self.magnitude)} is not {limits}")

    def _validate_flags(self) -> None:
        for name in ("integers", "step"):
            if not isinstance(given := getattr(self, name), bool):
                raise CaseError(f"case.{name}={shown(given)} is neither true nor false")
        if self.integers and self.magnitude:
            raise CaseError(f"case.magnitude={self.magnitude} with case.integers: sums would round")
        if self.integers and self.family != "normal":
            raise CaseError(f"case.family={self.family!r} with case.integers: give one of them")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Case.from_dict, (self.to_dict(),))

    def __getitem__(self, name: str) -> Any:
        try:
            return self.dims[name]
        except KeyError:
            hint = did_you_mean(name, self.dims)
            raise CaseError(f"the case has no dim {name!r}{hint}") from None

    def get(self, name: str, default: Any = None) -> Any:
        """The dim `name`, or `default` where the case has none of that name."""
        return self.dims.get(name, default)

    @property
    def tp(self) -> int:
        """The degree of tensor parallelism."""
        return self.mesh["tp"]

    @property
    def dp(self) -> int:
        """The number of data-parallel replicas of the TP group (1 without such an axis)."""
        return self.mesh.get("dp", 1)

    @property
    def world_size(self) -> int:
        """How many ranks the case needs: the product over the mesh's axes."""
        return math.prod(self.mesh.values())

    @property
    def when_saved(self) -> Case:
        """The case of the ranks that save what those of this one load."""
        if not self.saved_at:
            return self
        return replace(self, mesh={**self.mesh, "tp": self.saved_at}, saved_at=0)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Rank → its coordinate on each mesh axis (row-major: the last axis is innermost)."""
        return dict(_coordinates(tuple(self.mesh.items()), rank))

    def dp_coordinate(self, rank: int) -> int:
        """Which replica of the model a rank is of: its coordinate on `dp`; 0 without that axis."""
        return self.coordinates(rank).get("dp", 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, defaults included: what JSON reports and corpus files hold."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        return out | {"dims": dict(self.dims), "mesh": dict(self.mesh)}

    @classmethod
    def from_dict(cls, data: Any) -> Case:
        """The inverse of `to_dict`; raises `CaseError` on anything it doesn't know."""
        if not isinstance(data, Mapping):
            raise CaseError(f"a case is a JSON object, not {type(data).__name__}")
        known = {f.name for f in fields(cls)}
        for name in data:
            if name not in known:
                hint = did_you_mean(str(name)[:LONGEST_TEXT], known)
                raise CaseError(f"a case has no field {shown(name)}{hint}")
        return cls(**data)

    def canonical(self) -> str:
        """JSON with sorted dims: equal text for equal cases (the mesh keeps its axis order)."""
        data = self.to_dict()
        data["dims"] = dict(sorted(data["dims"].items()))
        for name, default in _LATER.items():
            if data[name] == default:
                del data[name]
        return json.dumps(data, separators=(",", ":"))

    def id(self, check: str) -> str:
        """Six hex digits that name this case of `check`, as in `tpcheck replay 7f3a91`."""
        return hashlib.sha256(f"{check}\n{self.canonical()}".encode()).hexdigest()[:6]

    def describe(self) -> str:
        """One line for people: `tp=2 float64 in_features=4 …`; defaults are left out."""
        parts = [f"{axis}={size}" for axis, size in self.mesh.items() if size > 1 or axis == "tp"]
        parts += [self.dtype, *(f"{k}={v}" for k, v in self.dims.items())]
        own = ((name, getattr(self, name)) for name in _DULL)
        parts += [f"{name}={value}" for name, value in own if value != _DULL[name]]
        return " ".join([*parts, f"seed={self.seed}"])


@functools.lru_cache(1 << 12)
def _coordinates(mesh: tuple[tuple[str, int], ...], rank: int) -> dict[str, int]:
    """Of one rank, in the order of the mesh."""
    out: dict[str, int] = {}
    for axis, size in reversed(mesh):
        rank, out[axis] = divmod(rank, size)
    return {axis: out[axis] for axis, _ in mesh}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_TEXT


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
