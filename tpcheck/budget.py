"""Communication budgets: how much a correct candidate sends, by the ring formulas.

A ring moves, per rank: for an all-gather or a reduce-scatter of n elements (R−1)/R · n, for an
all-reduce 2(R−1)/R · n, being one of each (Patarasuk & Yuan 2009). Budgets count elements, not
bytes: a sum in float32 of bfloat16 terms costs more bytes and is nobody's fault. The reverse is one
where a dtype was chosen to sum in, and values hide it: a budget may name that dtype. An op may be
replaced by others of no more volume (an all-reduce by a reduce-scatter and an all-gather).

Letters: R degree, n elements of the full tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpcheck.case import DTYPES
from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.event import COLLECTIVES
from tpcheck.given import demand
from tpcheck.vocabulary import Phase

#: What a collective may run in, by torch's names.
_DTYPES = (
    *(*DTYPES, "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.STEP)
_FACTOR = {"all_reduce": 2.0, "barrier": 0.0}


def ring(op: str, elements: float, degree: int) -> float:
    """Elements that one rank sends in a ring over `degree` ranks."""
    return _FACTOR.get(op, 1.0) * elements * (degree - 1) / max(degree, 1)


@dataclass(frozen=True)
class Budget:
    """What one microbatch may send, per rank.

    Args:
        forward: op → elements of the full tensor, summed over its uses; None allows anything.
        backward: the same of backward.
        at_least: (phase, name) → how often it must run: the witness that a path was taken. The name
            is a collective's op, a Triton kernel's, as in `"_forward"`, or that of an operator of a
            `torch.library`, as in `"mine::fused"`.
        dtypes: (phase, op) → the dtype in which it must run, as in `"float32"`.
        saved: elements that autograd may keep for backward in one forward, per rank, besides the
            parameters; None allows anything.

    Raises:
        InvalidArgument: a member is of another type.
    """

    forward: Mapping[str, int] | None = field(default_factory=dict)
    backward: Mapping[str, int] | None = field(default_factory=dict)
    at_least: Mapping[tuple[str, str], int] = field(default_factory=dict)
    saved: int | None = None
    dtypes: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "at_least", "dtypes"):
            given = getattr(self, name)
            optional = name in ("forward", "backward")
            if not isinstance(given, Mapping) and not (optional and given is None):
                example = '{"all_reduce": 64}' if optional else '{("forward", "all_reduce"): …}'
                raise InvalidArgument(
                    f"Budget({name}={shown(given)}) is a {type(given).__name__}; "
                    f"give a mapping, as in {example}"
                    + (", or None, which allows anything" if optional else "")
                )
        for name in ("at_least", "dtypes"):
            for key in getattr(self, name):
                _check_key(name, key)
        for name in ("forward", "backward"):
            ops = getattr(self, name)
            counts = ops is None or all(
                isinstance(op, str) and _is_count(elements) for op, elements in ops.items()
            )
            demand(self, name, counts, 'op → number of elements, as in {"all_reduce": 64}')
        for name in ("forward", "backward", "dtypes"):
            for key in getattr(self, name) or ():
                if (op := key[1] if name == "dtypes" else key) not in COLLECTIVES:
                    raise InvalidArgument(
                        f"Budget({name}=…) names {shown(op)}, which is not a collective"
                        f"{did_you_mean(str(op), COLLECTIVES)}"
                    )
        demand(self, "at_least", all(map(_is_count, self.at_least.values())), "counts as values")
        for dtype in self.dtypes.values():
            if dtype not in _DTYPES:
                raise InvalidArgument(
                    f"Budget(dtypes=…) names {shown(dtype)}, which is not a dtype"
                    f'{did_you_mean(str(dtype), _DTYPES)}; give its name, as in "float32"'
                )
        if self.saved is not None and not _is_count(self.saved):
            raise InvalidArgument(
                f"Budget(saved={shown(self.saved)}) is not a number of elements, nor None"
            )

    def __add__(self, other: Budget) -> Budget:
        return Budget(
            _sum(self.forward, other.forward),
            _sum(self.backward, other.backward),
            {**self.at_least, **other.at_least},
            self.saved if other.saved is None else (self.saved or 0) + other.saved,
            {**self.dtypes, **other.dtypes},
        )

    def __mul__(self, times: int) -> Budget:
        return Budget(
            _times(self.forward, times),
            _times(self.backward, times),
            self.at_least,
            None if self.saved is None else self.saved * times,
            self.dtypes,
        )

    @property
    def witnesses(self) -> frozenset[str]:
        """The names of what must run."""
        return frozenset(name for _, name in self.at_least)

    def allowed(self, phase: str, degree: int) -> float:
        """Ring elements that `phase` may send in one microbatch."""
        ops = self.backward if phase == "backward" else self.forward
        return math.inf if ops is None else sum(ring(op, n, degree) for op, n in ops.items())


def _is_count(value: object) -> bool:
    """Whether it is a number of elements: whole or not, since a share of a ring is not."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < math.inf  # type: ignore[operator]


def _check_key(name: str, key: object) -> None:
    """Keys are (phase, op): one that names another phase would never match anything."""
    if not isinstance(key, tuple) or len(key) != 2:
        raise InvalidArgument(
            f"Budget({name}=…) has the key {shown(key)}; give (phase, op), as in "
            '("forward", "all_reduce")'
        )
    if key[0] not in PHASES:
        raise InvalidArgument(
            f"Budget({name}=…) names the phase {shown(key[0])}; give one of {', '.join(PHASES)}"
        )


def _sum(a: Mapping[str, int] | None, b: Mapping[str, int] | None) -> dict[str, int] | None:
    if a is None or b is None:
        return None
    return {op: a.get(op, 0) + b.get(op, 0) for op in {**a, **b}}


def _times(a: Mapping[str, int] | None, times: int) -> dict[str, int] | None:
    return None if a is None else {op: n * times for op, n in a.items()}


# ---- the layers' budgets, from their shapes


def linear_in(elements: int, *, sequence_parallel: bool) -> Budget:
    """The way into a column-parallel layer, x of `elements`: f, or g with the input gathered once
    more in backward, for the weight's gradient."""
    if sequence_parallel:
        return Budget(
            {"all_gather": elements}, {"reduce_scatter": elements, "all_gather": elements}
        )
    return Budget({}, {"all_reduce": elements})


def linear_out(elements: int, *, sequence_parallel: bool) -> Budget:
    """The way out of a row-parallel layer, y of `elements`: f* or g*."""
    if sequence_parallel:
        return Budget({"reduce_scatter": elements}, {"all_gather": elements})
    return Budget({"all_reduce": elements}, {})


def summed_gradients(elements: int) -> Budget:
    """Replicated parameters of `elements` in all, whose gradients are partial."""
    return Budget({}, {"all_reduce": elements})
