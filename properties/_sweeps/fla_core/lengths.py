"""What the installed fla-core makes of the lengths of packed sequences: offsets and indices.

Each function keeps its last four results by its arguments' objects (`fla.utils.tensor_cache`): it
is given a tensor of its own here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fixtures.released.check import released
from fixtures.released.fla import PACKAGE, take
from fixtures.released.sequences import strategies
from tpcheck import Argument, Case, KnownFinding

CHUNK = 16
#: Chunks that there is room for.
ROOM = 32

Lengths = list[int]


def _offsets(lens: Tensor) -> Tensor:
    """0, and where each sequence ends."""
    return F.pad(lens.cumsum(0), (1, 0))


def _of(
    function: Callable[..., Any],
    reference: Callable[[Lengths], Any],
    *,
    least: int = 0,
    **more: Any,
) -> Any:
    """
    Args:
        function: lengths [N] → what it makes of them.
        reference: the same, of a list.
        least: the shortest sequence that it takes.
    """
    return released(
        PACKAGE,
        function,
        reference=lambda lens: torch.tensor(reference(lens.tolist()), dtype=torch.int64),
        arguments={"lens": Argument("sequences", integers=(least, 50))},
        sizes={"sequences": lambda sizes: strategies().integers(1, 5)},
        dtypes=("float32",),
        **more,
    )


def _utility(name: str, *more: Any) -> Callable[[Tensor], Any]:
    """Of offsets."""
    return lambda lens: take(f"ops.utils.index.{name}")(_offsets(lens), *more)


def _chunks(lens: Lengths) -> Lengths:
    return [-(-length // CHUNK) for length in lens]


def _numbered(counts: Lengths) -> list[Lengths]:
    """Which sequence, and which one of it."""
    return [[n, at] for n, count in enumerate(counts) for at in range(count)]


def _sequences(lens: Lengths) -> Lengths:
    return [n for n, _ in _numbered(lens)]


def _sums(counts: Lengths) -> Lengths:
    return [sum(counts[:n]) for n in range(len(counts) + 1)]


def _parts(lens: Lengths) -> Lengths:
    """Where each part of a sequence begins, and the end of all."""
    *begins, end = _sums(lens)
    each = zip(begins, lens, strict=True)
    return [*(at for begin, length in each for at in range(begin, begin + length, CHUNK)), end]


def _in_room(lens: Lengths) -> list[Lengths]:
    found = _numbered(_chunks(lens))
    return found + [[-1, 0]] * (ROOM - len(found))


prepare_lens = _of(_utility("prepare_lens"), lambda lens: lens)
prepare_cu_seqlens_from_lens = _of(
    lambda lens: take("ops.utils.index.prepare_cu_seqlens_from_lens")(lens.clone(), torch.int64),
    _sums,
)
prepare_split_cu_seqlens = _of(
    lambda lens: take("ops.utils.index.prepare_split_cu_seqlens")(
        split_size=CHUNK, cu_seqlens=_offsets(lens), dtype=torch.int64
    ),
    _parts,
)
prepare_position_ids = _of(
    _utility("prepare_position_ids"), lambda lens: [at for _, at in _numbered(lens)]
)
_sequence_ids, _token_indices = map(_utility, ("prepare_sequence_ids", "prepare_token_indices"))
prepare_sequence_ids = _of(_sequence_ids, _sequences, least=1)
prepare_token_indices = _of(_token_indices, _numbered, least=1)
_KNOWN = KnownFinding(
    package="fla-core",
    releases="==0.6.0",
    code="unclassified",
    case=Case(dims={"sequences": 1}, dtype="float32"),
    when=lambda case: True,
    page="docs/findings/fla-sequence-ids.md",
)
prepare_sequence_ids_empty, prepare_token_indices_empty = (
    _of(
        lambda lens, function=function: function(F.pad(lens, (1, 0))),
        lambda lens, reference=reference: reference([0, *lens]),
        least=1,
        known=[_KNOWN],
    )
    for function, reference in ((_sequence_ids, _sequences), (_token_indices, _numbered))
)
prepare_chunk_indices = _of(
    _utility("prepare_chunk_indices", CHUNK), lambda lens: _numbered(_chunks(lens))
)
prepare_chunk_offsets = _of(
    _utility("prepare_chunk_offsets", CHUNK), lambda lens: _sums(_chunks(lens))
)
_splits = _utility("get_max_num_splits", CHUNK)
get_max_num_splits = _of(lambda lens: torch.tensor(_splits(lens)), lambda lens: max(_chunks(lens)))
_static = _utility("prepare_chunk_indices_static", CHUNK, ROOM)
prepare_chunk_indices_static = _of(lambda lens: _static(lens)[0], _in_room)


def _of_mask(name: str, reference: Callable[[Tensor], Tensor]) -> Any:
    """A mask [N, T] of tokens that are there."""
    return released(
        PACKAGE,
        lambda mask: take(f"ops.utils.index.{name}")(mask.clone()),
        reference=reference,
        arguments={"mask": Argument("sequences", "length", dtype="bool")},
        sizes=dict.fromkeys(("sequences", "length"), lambda sizes: strategies().integers(1, 20)),
        dtypes=("float32",),
    )


prepare_lens_from_mask = _of_mask("prepare_lens_from_mask", lambda mask: mask.sum(-1).int())
prepare_cu_seqlens_from_mask = _of_mask(
    "prepare_cu_seqlens_from_mask", lambda mask: _offsets(mask.sum(-1)).int()
)
