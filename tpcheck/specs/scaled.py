"""Dims of the ready specs at the sizes of released models, scaled down with their ratios kept.

A case at degree R stands for the model at a degree T: each rank has as many query heads, and as
many K/V heads or replicas of one, as there. Heads, `head_dim`, hidden and intermediate size have
exactly the model's ratios. A size that R divides is one that it divides in the model, too. The
vocabulary is many times the hidden size: it is as large as the model's to a few rows, and what is
left over when R divides it is the same.

Legend: A query heads, G key/value heads, D head_dim, H hidden, I intermediate, V vocab, R degree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count, islice
from math import gcd
from typing import Any

from tpcheck.case import Dim
from tpcheck.configurations import ALL, Model, Models, chosen
from tpcheck.errors import InvalidArgument, shown

Dims = dict[str, Dim]
Among = Callable[[Mapping[str, Any]], Sequence[Dims]]

#: What D is scaled to: a rotation turns pairs of elements.
HEAD_DIMS = (2, 4)
#: Query heads in all, and K/V heads per rank, at most. With more, cases are larger and show the
#: same; with less, GPT-3 would have no odd number of heads per rank.
MOST_HEADS, MOST_KV = 64, 3
#: The smallest width that is not sharded. A norm of one or two elements leaves only their signs.
LEAST = 4
#: Cases of one width of a model.
FEW = 2


def among(part: str, models: Models, *, even: bool = False) -> Among | None:
    """What `strategies.cases(among=…)` takes: dims so far → the sets of dims that these models
    have at the degree, the smallest first; None where no model is asked for.

    Args:
        part: "attention", "mlp", "block", "language_model", "embedding", "column" or "row".
        models: "all" for each that has such a part.
        even: only sizes that the degree divides.

    Raises:
        InvalidArgument: a model that is named has no such part, or there is no such part at all.
    """
    if part not in _PARTS:
        raise InvalidArgument(f"among({shown(part)}, …): give one of {', '.join(_PARTS)}")
    asked = chosen(models)
    if models != ALL:
        for model in asked:
            if (reason := lacks(part, model)) is not None:
                raise InvalidArgument(f"models: {model.name} has no {part} of this kind: {reason}")
    asked = tuple(model for model in asked if lacks(part, model) is None)

    def found(drawn: Mapping[str, Any]) -> Sequence[Dims]:
        tp = drawn["tp"]
        sizes = [{"model": m.name, **dims} for m in asked for dims in _PARTS[part](m, tp)]
        if even and part in _SHARED:
            sizes = [dims for dims in sizes if dims[_SHARED[part]] % tp == 0]
        return sorted(sizes, key=_size)

    return found if asked else None


def lacks(part: str, model: Model) -> str | None:
    """Why the ready spec of this part has no case of the model, or None."""
    whole = part in ("block", "language_model")
    if (part == "attention" or whole) and model.latent:
        return "q, k and v come from latent vectors"
    if whole and model.experts:
        return "experts stand in the place of its MLP"
    if whole and model.parallel:
        return "attention and MLP stand side by side"
    return None


def attention(model: Model, tp: int) -> Iterator[Dims]:
    """A : G and A·D : H are the model's; there are none where R does not divide the heads."""
    flags: Dims = {"qk_norm": model.qk_norm, "rotary": model.rotary is not None, "causal": True}
    flags |= {"norm": model.norm, "bias": model.bias}
    for heads, kv_heads in _heads(model, tp):
        for head_dim in HEAD_DIMS:
            part = Fraction(heads * head_dim, model.heads * model.head_dim)
            hidden = model.hidden * part
            if hidden.denominator == 1 and model.head_dim % head_dim == 0:
                sizes = {"hidden": int(hidden), "heads": heads, "kv_heads": kv_heads}
                yield {**sizes, "head_dim": head_dim, **flags}


def _heads(model: Model, tp: int) -> list[tuple[int, int]]:
    """(A, G) of the model at a degree T, which has as many per rank: G is the model's · R / T."""
    group, kv_heads = model.heads // model.kv_heads, model.kv_heads
    fits = [
        (group * kv, kv)
        for kv in range(1, kv_heads + 1)
        if kv_heads % kv == 0 and group * kv % tp == 0 and (kv % tp == 0 or tp % kv == 0)
    ]
    small = [(heads, kv) for heads, kv in fits if heads <= MOST_HEADS and kv <= MOST_KV * tp]
    return small or fits[:1]


def mlp(model: Model, tp: int) -> Iterator[Dims]:
    """I : H is the model's; that of an expert, too, where there are experts."""
    for width in model.widths:
        for hidden, intermediate in _pairs(model.hidden, width, tp):
            yield {"hidden": hidden, "intermediate": intermediate, **_of_mlp(model)}


def _of_mlp(model: Model) -> Dims:
    activation = "swiglu" if model.gated else "gelu"
    return {"activation": activation, "norm": model.norm, "bias": model.bias}


def block(model: Model, tp: int) -> Iterator[Dims]:
    """Attention and MLP of one hidden size."""
    for dims in attention(model, tp):
        intermediate = Fraction(model.intermediate * int(dims["hidden"]), model.hidden)
        if intermediate.denominator == 1 and intermediate % tp == 0:
            yield {**dims, "intermediate": int(intermediate), **_of_mlp(model)}


def language_model(model: Model, tp: int) -> Iterator[Dims]:
    """A block, with a vocabulary for its hidden size, and a head that is tied as the model's."""
    for dims in block(model, tp):
        vocab = _vocab(model, int(dims["hidden"]), tp)
        if _fills(vocab, tp):
            yield {**dims, "vocab": vocab, "tied": model.tied}


def embedding(model: Model, tp: int) -> Iterator[Dims]:
    """V : H is nearly the model's; where V is uneven it is so by as many rows, and each rank has
    some, as in the model."""
    fits = (
        {"hidden": hidden, "vocab": vocab}
        for hidden in (2**n for n in count(1))
        if _fills(vocab := _vocab(model, hidden, tp), tp)
    )
    return islice(fits, FEW)


def _fills(size: int, tp: int) -> bool:
    """Whether each rank has a part of it, as `torch.chunk` splits."""
    return (tp - 1) * -(-size // tp) < size


def _vocab(model: Model, hidden: int, tp: int) -> int:
    over = model.vocab % tp
    return round(Fraction(model.vocab * hidden, model.hidden) / tp - Fraction(over, tp)) * tp + over


def column(model: Model, tp: int) -> Iterator[Dims]:
    """From H to A·D, and to I."""
    for whole, shared in _projections(model, tp):
        yield {"in_features": whole, "out_features": shared, "bias": model.bias}


def row(model: Model, tp: int) -> Iterator[Dims]:
    """From A·D, and from I, to H."""
    for whole, shared in _projections(model, tp):
        yield {"in_features": shared, "out_features": whole, "bias": model.bias}


def _projections(model: Model, tp: int) -> Iterator[tuple[int, int]]:
    attended = () if model.latent else (model.heads * model.head_dim,)
    for shared in (*attended, *model.widths):
        yield from _pairs(model.hidden, shared, tp)


def _pairs(whole: int, shared: int, tp: int) -> list[tuple[int, int]]:
    """Small pairs in the ratio of `whole` to `shared`; R divides the second where it divides
    `shared`."""
    common = gcd(whole, shared)
    pairs = ((n * (whole // common), n * (shared // common)) for n in count(1))
    alike = (p for p in pairs if (p[1] % tp == 0) == (shared % tp == 0) and _fills(p[1], tp))
    return list(islice((p for p in alike if p[0] >= LEAST), FEW))


def _size(dims: Dims) -> int:
    return sum(size for size in dims.values() if not isinstance(size, (bool, str)))  # type: ignore[misc]


_PARTS = {
    "attention": attention,
    "mlp": mlp,
    "block": block,
    "language_model": language_model,
    "embedding": embedding,
    "column": column,
    "row": row,
}
#: What ranks share, and need not divide.
_SHARED = {
    "mlp": "intermediate",
    "language_model": "vocab",
    "embedding": "vocab",
    "column": "out_features",
    "row": "in_features",
}
