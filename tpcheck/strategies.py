"""Hypothesis strategies of cases. Driver only: ranks never draw.

A spec says which dims it has and how to draw each; `cases()` adds what all share: degree, mesh,
dtype, seed, microbatches, a step, memory formats, magnitudes. Everything shrinks towards the
dullest case: two ranks, float64, the smallest dims, one contiguous microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tpcheck.case import DTYPES, FAMILIES, MEMORY_FORMATS, MODEL_FORMATS, Case, Dim
from tpcheck.configurations import ALL, Models, chosen
from tpcheck.errors import InvalidArgument, did_you_mean, shown
from tpcheck.given import is_whole, require_some
from tpcheck.space import Space

Dims = dict[str, Any]
#: How many microbatches a case usually has. In one of so many cases of two it has five, since some
#: faults begin at a later call. The seed says which: a choice of its own that changes little costs
#: a hunt, which tries each, its way up.
USUAL, SELDOM, MANY = (1, 1, 2), 6, 5
# A dim is a strategy, a constant, a list of values, or a function of the dims drawn so far (mesh
# axes among them).
DimStrategy = SearchStrategy[Any] | Dim | list[Any] | Callable[[Dims], Any]


@st.composite
def cases(
    draw: Any,
    space: Space,
    dims: Mapping[str, DimStrategy],
    *,
    valid: Callable[[Dims], bool] | None = None,
    axes: Mapping[str, Sequence[int]] | None = None,
    microbatches: Sequence[int] | None = None,
    memory: Sequence[str] = MODEL_FORMATS,
    families: Sequence[str] = ("normal",),
    among: Callable[[Dims], Sequence[Dims]] | None = None,
) -> Case:
    """Cases over `dims`, drawn in their order.

    Args:
        space: what the run asks for.
        dims: name → strategy, constant, a list of values, the dullest first, or a function of the
            dims so far (`d["tp"]` included). A name that begins with `_` is drawn for others to
            depend on, and is no dim of the case.
        valid: dims → whether they fit together; others are thrown away.
        axes: further mesh axes that every case has, outermost first, and the sizes that each may
            have, as in `{"pp": (2,)}`; tp stays innermost. By default part of the cases have
            `dp=2`. A degree for which the ranks don't suffice has no case.
        microbatches: how many there may be, the most frequent ones more than once; by default one
            or two, and seldom five.
        memory: how inputs and cotangents may be laid out, of `case.MEMORY_FORMATS`.
        families: what inputs may be like, of `case.FAMILIES`.
        among: mesh axes → sets of dims that belong together, the dullest first. Each case has one
            of them, in the place of what `dims` says of these names. A mesh for which there is
            none has no case.

    Raises:
        InvalidArgument: a format or a family that is not known, `space.dims` names no dim, a list
            of values is empty, or `axes` or `microbatches` are not what they are to be.
    """
    require_some("memory", memory, MEMORY_FORMATS)
    require_some("families", families, FAMILIES)
    if axes is not None and not isinstance(axes, Mapping):
        raise InvalidArgument(f"axes={shown(axes)}: give a mapping, as in {{'pp': (2,)}}")
    for axis, may_have in (axes or {}).items():
        _require_counts(f"axes={{{axis!r}: …}}", may_have)
    if microbatches is not None:
        _require_counts("microbatches", microbatches)
    dims = _with(space.dims, dims)
    meshes = space.meshes() if axes is None else space.meshes_of(axes)
    mesh = draw(st.sampled_from(meshes) if meshes else st.nothing())
    dtype = draw(st.sampled_from([d for d in DTYPES if d in space.dtypes]))
    drawn: Dims = {"dp": 1, **mesh}
    if among is not None:
        sets = list(among(drawn))
        one = draw(st.sampled_from(sets) if sets else st.nothing())
        _require_free(space.dims, one)
        dims = {**one, **dims, **one}  # first, so that others may depend on them
    _draw_dims(draw, dims, drawn)
    _require(valid is None or valid(drawn))
    seed = draw(st.integers(0, 2**20))
    count = draw(st.sampled_from(list(microbatches or USUAL)))
    if microbatches is None and count == max(USUAL) and seed % SELDOM == SELDOM - 1:
        count = MANY
    return Case(
        dims={k: v for k, v in drawn.items() if k not in ("dp", *mesh) and not k.startswith("_")},
        dtype=dtype,
        mesh=mesh,
        seed=seed,
        microbatches=count,
        step=draw(st.sampled_from([False, False, True])),
        memory=draw(st.sampled_from([*memory[:1], *memory])),
        magnitude=draw(st.sampled_from([0, 0, 0, -6, 4])),
        family=draw(st.sampled_from(list(families))) if len(families) > 1 else families[0],
    )


#: From here on a dim is wide: sums that are rounded at each addition are far off where numbers are
#: equal, and hide among others. In half precisions such rows are as frequent as all others.
WIDE, ALIKE, HALVES = 512, "equal", ("bfloat16", "float16")


@st.composite
def kernel_cases(
    draw: Any,
    space: Space,
    sizes: Mapping[str, DimStrategy],
    formats: Sequence[str],
    families: Sequence[str],
    degrees: Sequence[int] = (1,),
    valid: Callable[[Dims], bool] = lambda dims: True,
) -> Case:
    """Cases over `sizes`, drawn in their order: no mesh but tp, no step; numbers far from one more
    often than for models. With two microbatches a second call, on other numbers, comes between the
    first one and its backward.

    Args:
        formats: of memory.
        families: of numbers; the first one is as frequent as all others.
        degrees: of tp; where there is none there is no case.
        valid: as in `cases`.
    """
    several = st.sampled_from(sorted(degrees)) if degrees else st.nothing()
    degree = degrees[0] if len(degrees) == 1 else draw(several)
    drawn: Dims = {"tp": degree}
    _draw_dims(draw, _with(space.dims, sizes), drawn)
    _require(valid(drawn))
    dims = {name: value for name, value in drawn.items() if name != "tp"}
    dtype = draw(st.sampled_from([d for d in DTYPES if d in space.dtypes]))
    several_of = [*[families[0]] * (len(families) - 1), *families]
    if dtype in HALVES and any(is_whole(size, WIDE) for size in dims.values()):
        several_of += [family for family in families if family == ALIKE] * len(several_of)
    return Case(
        dims=dims,
        dtype=dtype,
        mesh={"tp": degree},
        seed=draw(st.integers(0, 2**20)),
        memory=draw(st.sampled_from(list(formats))),
        magnitude=draw(st.sampled_from([0, 0, -6, 4])),
        family=draw(st.sampled_from(several_of)),
        gradients=draw(st.sampled_from(["all", "all", "all", "some", "none"])),
        microbatches=draw(st.sampled_from([1, 1, 1, 2])),
    )


def _with(given: Mapping[str, Any], dims: Mapping[str, DimStrategy]) -> Mapping[str, DimStrategy]:
    """The dims, some of them as a spec narrows or widens them, in their own order."""
    for name in given:
        if name not in dims:
            raise InvalidArgument(f"Spec(dims=…) names {name!r}{did_you_mean(name, dims)}")
    return {**dims, **{n: list(h) if isinstance(h, tuple) else h for n, h in given.items()}}


def _require_free(given: Mapping[str, Any], one: Dims) -> None:
    """Raises where `among` says what a spec's `dims` say, too."""
    if both := [name for name in given if name in one]:
        raise InvalidArgument(
            f"Spec(dims=…) names {both[0]!r}, which comes with the model: give models= or dims="
        )


def _require_counts(what: str, given: Collection[int]) -> None:
    several = isinstance(given, Collection) and bool(given)
    if not several or not all(is_whole(one, 1) for one in given):
        raise InvalidArgument(f"{what}: {shown(given)} is not a tuple of counts, as (1, 2) is")


def _require(fits: bool) -> None:
    if not fits:
        reject()


def _draw_dims(draw: Any, dims: Mapping[str, DimStrategy], drawn: Dims) -> None:
    """Adds each dim to those that are drawn."""
    for name, asked in dims.items():
        how = asked(drawn) if callable(asked) and not isinstance(asked, SearchStrategy) else asked
        if isinstance(asked, list):
            if not asked:
                raise InvalidArgument(f"the dim {name!r} has no values: give some, as in [1, 2]")
            how = st.sampled_from(asked)
        drawn[name] = draw(how) if isinstance(how, SearchStrategy) else how


def counts(least: int = 0) -> SearchStrategy[int]:
    """How many rows: few, by default none among them, now and then more than a group of 32, or any
    number up to 72."""
    few = st.sampled_from([n for n in (1, 2, 3, 0, 5, 33, 67) if n >= least])
    return _mostly(few, st.integers(least, 72))


def widths(*blocks: int) -> SearchStrategy[int]:
    """Sizes around those of blocks, by default around 4, 16, 64 and 1024: each, one less, one
    more, two and one more, primes among them; those that take several blocks of the largest twice
    as often, since a kernel's block is as large as a row up to there. In a third of the draws any
    up to 160, or a multiple of 8 up to 768: most of those are no power of two, and some divide by a
    vector's width."""
    known = blocks or (4, 16, 64, 1024)
    around = {size for b in known for size in (b - 1, b, b + 1, 2 * b + 1)}
    several = (max(known) + 1, 2 * max(known) + 1)
    edges = st.sampled_from([*sorted({1, 2, *around}), *several])
    return _mostly(edges, st.integers(1, 160), st.integers(1, 96).map(lambda n: 8 * n))


def _mostly(first: SearchStrategy[int], *others: SearchStrategy[int]) -> SearchStrategy[int]:
    """The first in four draws, each of the others in one."""
    each = [first] * 4 + [*others]
    return st.integers(0, len(each) - 1).flatmap(each.__getitem__)


def model_widths(models: Models = ALL, *, divided: int = 64) -> SearchStrategy[int]:
    """Widths of the rows of released models: hidden and intermediate sizes, all heads side by side.

    Args:
        divided: by how much each is; 1 for the sizes as they are. Divided by a power of two, a row
            fills as large a part of the next power of two, a kernel's block, as the model's.

    Raises:
        InvalidArgument: no model is given, or a width can't be divided so.
    """
    own = {w for m in chosen(models) for w in (m.hidden, m.heads * m.head_dim, *m.widths)}
    if not own or not is_whole(divided, 1) or any(width % divided for width in own):
        raise InvalidArgument(
            f"model_widths({shown(models)}, divided={shown(divided)}): give models, and a number "
            f"that divides {', '.join(map(str, sorted(own))) or 'their widths'}"
        )
    return st.sampled_from(sorted(width // divided for width in own))


def sizes(low: int = 1, high: int = 9) -> SearchStrategy[int]:
    """Small sizes, odd ones included."""
    return st.integers(low, high)


def at_least(dim: str, high: int) -> Callable[[Dims], SearchStrategy[int]]:
    """Sizes from another dim to `high`, or to twice that dim: of what `tp` ranks share by plain
    chunking, where only the last ones may hold nothing."""
    return lambda dims: sizes(dims[dim], max(high, 2 * dims[dim]))


def multiples(of: str | int, *, most: int = 3) -> Callable[[Dims], SearchStrategy[int]]:
    """Small multiples of another dim (or of a number): what must divide evenly."""

    def draw(dims: Dims) -> SearchStrategy[int]:
        unit = dims[of] if isinstance(of, str) else of
        return st.integers(1, most).map(lambda k: k * unit)

    return draw


def head_counts(dims: Dims) -> SearchStrategy[tuple[int, int]]:
    """(query heads, K/V heads) that a TP degree allows: whole query heads per rank, and K/V heads
    that divide by the degree or into it (K/V replicas). MQA, MHA and GQA, with K/V heads below the
    degree, as many and more, are all as frequent."""
    tp = dims["tp"]
    kinds: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for heads in (tp, 2 * tp, 4 * tp):
        for kv in range(1, heads + 1):
            if heads % kv == 0 and (kv % tp == 0 or tp % kv == 0) and heads <= max(16, tp):
                kind = (kv > 1, kv >= tp, kv > tp, heads > kv)
                kinds.setdefault(kind, []).append((heads, kv))
    # always two choices: Hypothesis takes a case with fewer for the duller one
    drawn = st.tuples(st.sampled_from(sorted(map(sorted, kinds.values()))), st.integers(0, 11))
    return drawn.map(lambda of: of[0][of[1] % len(of[0])])
