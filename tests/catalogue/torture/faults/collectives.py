"""Collectives on which ranks disagree, or that never end."""

from __future__ import annotations

import os
import threading

import torch
import torch.distributed as dist

from tests.catalogue.torture.fault import ANY, FAIL, GLOO, PASS, Effect, Here, Place, Replace, kind

_HERE = (Place.FORWARD, Place.NODE)
_PEERLESS = frozenset({"FAIL", "UNKNOWN"})


def _some(here: Here) -> torch.Tensor:
    return torch.ones(4, dtype=torch.float64)


@kind(Effect.SPOILS, "MAX", "MIN", "PRODUCT", at=_HERE)
def another_reduction(here: Here) -> None:
    """One more reduction, in which one rank has another operation."""
    mine = here.rank == here.module.degree - 1
    op = getattr(dist.ReduceOp, here.variant) if mine else dist.ReduceOp.SUM
    dist.all_reduce(_some(here), op=op, group=here.group)


@kind(Effect.SPOILS, at=_HERE)
def one_collective_more(here: Here) -> None:
    """One rank runs a collective that the others do not."""
    dist.all_reduce(_some(here), group=here.group)


@kind(Effect.SPOILS, "barrier", "broadcast", "all_gather", at=_HERE, engines=GLOO)
def another_collective_more(here: Here) -> None:
    """One rank runs a collective of another kind that the others do not."""
    if here.variant == "barrier":
        dist.barrier(here.group)
    elif here.variant == "broadcast":
        dist.broadcast(_some(here), group_src=0, group=here.group)
    else:
        parts = [_some(here) for _ in range(here.module.degree)]
        dist.all_gather(parts, _some(here), group=here.group)


@kind(Effect.HARMLESS, at=_HERE, everywhere=True)
def one_more_on_every_rank(here: Here) -> None:
    """All ranks run a collective that nobody needs."""
    dist.all_reduce(_some(here), group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True)
def shapes_differ(here: Here) -> None:
    """Ranks reduce tensors of different sizes."""
    dist.all_reduce(torch.ones(3 + here.rank), group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True)
def dtypes_differ(here: Here) -> None:
    """Ranks reduce tensors of different dtypes."""
    dtype = torch.float32 if here.rank else torch.float64
    dist.all_reduce(torch.ones(4, dtype=dtype), group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True)
def orders_differ(here: Here) -> None:
    """Ranks run two collectives in different orders."""
    parts = [_some(here) for _ in range(here.module.degree)]
    if here.rank:
        dist.all_gather(parts, _some(here), group=here.group)
    dist.all_reduce(_some(here), group=here.group)
    if not here.rank:
        dist.all_gather(parts, _some(here), group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True)
def roots_differ(here: Here) -> None:
    """Each rank broadcasts from itself."""
    dist.broadcast(_some(here), group_src=here.rank, group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True, engines=GLOO)
def splits_differ(here: Here) -> None:
    """A rank sends more than its peer expects."""
    degree = here.module.degree
    sent = [2 if here.rank else 1] + [1] * (degree - 1)
    x, y = torch.ones(sum(sent)), torch.ones(degree)
    dist.all_to_all_single(y, x, [1] * degree, sent, group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True, engines=GLOO)
def groups_differ(here: Here) -> None:
    """Ranks reduce over different groups of the same ranks."""
    twin = dist.new_group(dist.get_process_group_ranks(here.group))
    dist.all_reduce(_some(here), group=twin if here.rank else here.group)


@kind(Effect.SPOILS, at=_HERE, engines=GLOO)
def a_group_on_one_rank(here: Here) -> None:
    """One rank makes a group, which all must make."""
    dist.new_group(dist.get_process_group_ranks(here.group))


@kind(Effect.SPOILS, at=(Place.SUMMED,), everywhere=True)
def none_at_all(here: Here) -> Replace:
    """No rank reduces its output."""
    x = here.module.last_input
    return Replace(here.module.multiply(x))


@kind(Effect.MEDDLES, at=_HERE, everywhere=True, engines=GLOO)
def one_that_is_never_waited_for(here: Here) -> None:
    """Starts a collective, and does not wait for it."""
    here.module.pending = dist.all_reduce(_some(here), group=here.group, async_op=True)


@kind(Effect.SPOILS, at=_HERE, engines=GLOO)
def one_rank_starts_one(here: Here) -> None:
    """One rank starts a collective without waiting, and the others never come."""
    here.module.pending = dist.all_reduce(_some(here), group=here.group, async_op=True)


@kind(Effect.MEDDLES, at=_HERE, everywhere=True, engines=GLOO)
def one_in_a_thread(here: Here) -> None:
    """Runs a collective in a thread, and joins it."""
    thread = threading.Thread(
        target=dist.all_reduce, args=(_some(here),), kwargs={"group": here.group}
    )
    thread.start()
    thread.join()


@kind(Effect.SPOILS, at=_HERE, engines=GLOO)
def a_message_that_nobody_receives(here: Here) -> None:
    """Sends a peer what it does not receive."""
    peer = dist.get_process_group_ranks(here.group)[0]
    here.module.pending = dist.isend(_some(here), dst=peer, group=here.group)


@kind(Effect.SPOILS, at=_HERE, engines=GLOO, expects=_PEERLESS)
def a_message_that_nobody_sends(here: Here) -> None:
    """Waits for a message that a peer does not send."""
    peer = dist.get_process_group_ranks(here.group)[0]
    dist.recv(_some(here), src=peer, group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True, engines=GLOO)
def messages_that_do_not_fit(here: Here) -> None:
    """Receives more than was sent."""
    first, second, *_ = dist.get_process_group_ranks(here.group)
    if here.rank == 0:
        dist.send(torch.ones(3), dst=second, group=here.group)
    elif here.rank == 1:
        dist.recv(torch.ones(5), src=first, group=here.group)


@kind(Effect.SPOILS, at=_HERE, everywhere=True)
def a_group_that_is_destroyed(here: Here) -> None:
    """Destroys its group, and uses it."""
    dist.destroy_process_group(here.group)
    dist.all_reduce(_some(here), group=here.group)


@kind(Effect.SPOILS, at=_HERE, expects=FAIL, engines=GLOO)
def an_object_that_can_not_be_sent(here: Here) -> None:
    """Gathers objects of which one can't be pickled."""
    parts: list[object] = [None] * here.module.degree
    dist.all_gather_object(parts, threading.Lock(), group=here.group)


@kind(Effect.SPOILS, "meta", "sparse", "strided", "bool", at=_HERE, everywhere=True, expects=ANY)
def tensors_that_can_not_be_reduced(here: Here) -> None:
    """Reduces a tensor that gloo does not take."""
    made = {
        "meta": torch.ones(4, device="meta"),
        "sparse": torch.eye(3).to_sparse(),
        "strided": torch.ones(4, 4).t()[::2],
        "bool": torch.ones(4, dtype=torch.bool),
    }
    dist.all_reduce(made[here.variant], group=here.group)


@kind(Effect.HARMLESS, 0, at=_HERE, everywhere=True, expects=PASS, engines=GLOO)
def empty_ones(here: Here) -> None:
    """Reduces a tensor without elements."""
    dist.all_reduce(torch.ones(here.variant), group=here.group)


@kind(Effect.HARMLESS, 300, at=(Place.FORWARD,), everywhere=True, expects=PASS)
def very_many(here: Here) -> None:
    """Runs hundreds of collectives."""
    tensor = torch.ones(1)
    for _ in range(here.variant):
        dist.all_reduce(tensor, group=here.group)


@kind(Effect.ENDS, at=_HERE, engines=GLOO)
def dies_within_one(here: Here) -> None:
    """Starts a collective, and dies before it is over."""
    dist.all_reduce(torch.ones(2**20), group=here.group, async_op=True)
    os._exit(0)


@kind(Effect.MEDDLES, at=(Place.FINALIZE,), engines=GLOO, expects=ANY)
def one_after_the_end(here: Here) -> None:
    """One rank starts a collective when all is done."""
    dist.all_reduce(_some(here), group=here.group, async_op=True)
