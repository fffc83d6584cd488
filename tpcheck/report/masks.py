"""The sentences of evidence of random masks."""

from __future__ import annotations

from tpcheck.errors import counted
from tpcheck.evidence import (
    MaskOfOtherShape,
    MaskRedrawn,
    MaskRepeated,
    MasksAgree,
    MasksCounted,
    MasksDiffer,
    OfMask,
    OtherRate,
)


def drawn(detail: OfMask) -> str:
    """What is wrong with what a rank drew, and where it was drawn."""
    if isinstance(detail, MasksCounted):
        masks = counted(detail.drawn, "random mask")
        return f"a forward draws {masks}, the reference's {detail.expected}"
    of = f" of {detail.module}" if detail.module else ""
    at = f" ({detail.where}{of})" if detail.where else of
    return f"{_said(detail)}{at}"


def _said(
    detail: MasksDiffer | MasksAgree | MaskRepeated | MaskRedrawn | OtherRate | MaskOfOtherShape,
) -> str:
    match detail:
        case MasksDiffer(ranks, odd):
            return (
                f"ranks {list(ranks)} have the same elements, and ranks {list(odd)} draw another "
                "mask for them"
            )
        case MasksAgree(ranks, dims):
            split = ", ".join(map(str, dims))
            return (
                f"ranks {list(ranks)} have different parts of a tensor (dim {split} is split) and "
                "draw the same mask for them"
            )
        case MaskRepeated(earlier):
            return f"the very mask that {earlier} was"
        case MaskRedrawn():
            return "drawn in backward, and not as a forward drew it that is computed again there"
        case OtherRate(chance, expected):
            return f"drawn with chance {chance:g}, the reference's is {expected:g}"
        case MaskOfOtherShape(shape, expected):
            return f"of shape {list(shape)}, which is no part of the reference's {list(expected)}"
