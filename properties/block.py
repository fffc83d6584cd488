"""A pre-norm block, and a stack of them, equal the plain ones: errors don't hide in depth."""

from typing import Any

from fixtures.parallel.block import Block, Stack
from tpcheck import Case, Check, specs
from tpcheck.specs.block import block_dims


def _block(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> Block:
        group = mesh["tp"].get_group()
        return Block(**block_dims(case), group=group, sequence_parallel=sequence_parallel)

    return build


def _stack(*, sequence_parallel: bool) -> Any:
    def build(case: Case, mesh: Any) -> Stack:
        group = mesh["tp"].get_group()
        return Stack(
            case["layers"], **block_dims(case), group=group, sequence_parallel=sequence_parallel
        )

    return build


block = Check(specs.block(), candidate=_block(sequence_parallel=False), communication=True)
block_sp = Check(
    specs.block(sequence_parallel=True),
    candidate=_block(sequence_parallel=True),
    communication=True,
)
stack = Check(specs.stack(), candidate=_stack(sequence_parallel=False), communication=True)
stack_sp = Check(
    specs.stack(sequence_parallel=True),
    candidate=_stack(sequence_parallel=True),
    communication=True,
)
