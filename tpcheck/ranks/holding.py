"""What a rank keeps in memory of a model: its parameters, their gradients, the optimizer's state.

A tensor keeps all of its storage alive: the bytes of the distinct storages are what is held. What
is due is the rank's part of each tensor by the layout, in the dtype in which it is held; where the
layout does not name a parameter, by what the candidate's own tensor says of itself. They are the
same but for padding, buckets, and what is not placed as the layout says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.evidence import Misheld
from tpcheck.placement import Entry, follows, holds, is_sharded, take
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.problem import Target
from tpcheck.protocol.scaling import SCALE
from tpcheck.ranks.memory import attributes, kept_bytes, plain, storage_of
from tpcheck.ranks.parts import Own, has_numbers
from tpcheck.tensors.forms import FLOATS
from tpcheck.tensors.live import local
from tpcheck.tensors.mapped import is_mapped
from tpcheck.tensors.names import InPass, Pass, parameters_of, tensors_of
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind

#: Dtypes in which an attribute or a buffer may have a whole parameter's numbers.
TOLD = frozenset([*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2])

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer_state"

#: Elements that padding may add to one tensor, and that a whole one has at least. Alignment of an
#: allocator's is less, and few numbers may be others' by chance; with more, what small cases keep
#: of whole tensors would not show.
PADDING = 32

#: To a multiple of so many elements, or of a multiple of that, optimizers pad their state:
#: eight-bit ones, fused ones, flat buckets.
BLOCK = 64

#: Relative distance up to which numbers are those of other ranks' parts: more than bfloat16 rounds.
ALIKE = 0.05


class Holding:
    """Notes what is held in the rank's report, and what keeps a whole tensor where a shard is due.

    Args:
        work: what the rank was sent.
        full: name → full parameter.
        targets: what is expected of gradients and of the optimizer's state, by kind and name.
    """

    def __init__(
        self,
        work: Work,
        full: Mapping[str, Tensor],
        targets: Mapping[tuple[Kind, str], Target],
        report: RankReport,
    ) -> None:
        self.work, self.case, self.params = work, work.case, work.params
        self.full, self.targets, self.report = full, targets, report

    def parameters(self, module: Any) -> None:
        """As the loader left them; their own storages are the loader's to judge."""
        if isinstance(module, nn.Module):
            own = parameters_of(module, self.full)
            self._note(PARAMETERS, own, {name: self._of_parameter(name) for name in own})

    def gradients(self, grads: Mapping[str, Tensor | None], step: int) -> None:
        """Of the parameters, by their names."""
        there = {name: grad for name, grad in grads.items() if grad is not None}
        self._note(GRADIENTS, there, {name: self._of_parameter(name) for name in there})
        self._judge(Kind.PARAM_GRAD, there, step, "gradient")

    def state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Of the optimizer, as `PARAMETER.KEY`."""
        there = {name: tensor for name, tensor in state.items() if name != SCALE}
        self._note(STATE, there, {name: self._of_state(name, step) for name in there})
        self._judge(Kind.OPTIMIZER_STATE, there, step, "optimizer's state")

    def elsewhere(self, module: Any) -> None:
        """What the module keeps besides: no whole parameter of which the rank has a shard."""
        if not isinstance(module, nn.Module):
            return
        own = tensors_of(module)
        due = plain({name: tensor for name, tensor in own.items() if name in self.full})
        more = plain({name: tensor for name, tensor in own.items() if name not in self.full})
        numbers, same = Own(due.values()), {_same(tensor) for tensor in due.values()}
        kept = [(f"buffer {name}", tensor) for name, tensor in more.items()]
        for where, tensor in [*kept, *((f"attribute {n}", t) for n, t in attributes(module))]:
            if tensor.dtype not in TOLD or _same(tensor) in same:
                continue
            if kept_bytes(tensor) < tensor.nbytes:
                continue  # it repeats what it keeps
            for name, full in self.full.items():
                alike = tensor.shape == full.shape and _is_whole(tensor, full)
                if alike and not is_mapped(tensor) and self._told(name, full, own, numbers):
                    self._found(name, where, kept_bytes(tensor), 0)

    def _told(self, name: str, full: Tensor, own: Mapping[str, Tensor], numbers: Own) -> bool:
        """Whether the rank has a part of a parameter, and is to have not all of its numbers.

        Args:
            own: tensors of the module.
            numbers: all that the rank is to have.
        """
        if not self._sharded(name) or not full.is_floating_point() or full.numel() <= PADDING:
            return False
        whole = name in own and local(own[name]).numel() == full.numel()
        return not whole and not bool(numbers.of(full.dtype).have(full.flatten().cpu()).all())

    def _note(
        self, what: str, tensors: Mapping[str, Tensor], elements: Mapping[str, int | None]
    ) -> None:
        """With how many elements of each are due; None where nothing says, as of its own."""
        own = plain(tensors)
        held = {storage_of(t): t.untyped_storage().nbytes() for t in own.values()}
        due: dict[object, int] = {}
        for name, tensor in own.items():
            one = _same(tensor) if tensor.numel() else name  # a tied one once
            count = elements[name]
            due[one] = tensor.nbytes if count is None else count * tensor.element_size()
        most = self.report.bytes.get(what, (0, 0))
        self.report.bytes[what] = max(most, (sum(held.values()), sum(due.values())))

    def _of_parameter(self, name: str) -> int | None:
        """Elements that the rank is to have of a parameter, and of its gradient."""
        return self._part(self.full[name], self._due(name)) if name in self.full else None

    def _of_state(self, name: str, step: int) -> int | None:
        """The same of a tensor of the optimizer's, which is placed as its parameter is unless the
        layout says otherwise."""
        of = parameter_of(name, self.full)
        target = self.targets.get((Kind.OPTIMIZER_STATE, str(InPass(name, Pass(0, step)))))
        if of is None or target is None:
            return None
        shapes = tuple(target.value.shape), tuple(self.full[of].shape)
        own = follows(self._due(of), *shapes)
        as_parameter = target.entry == follows(self.params[of], *shapes)
        return self._part(target.value, own if own is not None and as_parameter else target.entry)

    def _due(self, name: str) -> Entry:
        """How a parameter is to be placed."""
        planned = self.params[name]
        return planned if name in self.work.named else self.report.entries.get(name, planned)

    def _part(self, full: Tensor, entry: Entry) -> int:
        where: dict[str, Any] = {"case": self.case, "rank": self.report.rank}
        return take(full, entry, **where).numel() if holds(entry, **where) else 0

    def _judge(self, kind: Kind, tensors: Mapping[str, Tensor], step: int, what: str) -> None:
        """Tensors that are views into the whole one, by its size and its numbers: a storage as
        large may well be a bucket, padding, or the gradient of a fused product."""
        there = plain(tensors)
        for name, here in there.items():
            of = name if name in self.full else parameter_of(name, self.full)
            if of is None or not self._sharded(of) or not here.numel():
                continue
            storage, count = here.untyped_storage(), self.full[of].numel()
            large = storage.nbytes() == count * here.element_size()
            if not large or count - here.numel() <= PADDING:
                continue
            flat, named = here.new_empty(0).set_(storage), str(InPass(name, Pass(0, step)))
            due = self.targets.get((kind, named))
            # what an optimizer has made for the whole, and uses a part of, is zero elsewhere
            alone = sum(storage_of(one) == storage_of(here) for one in there.values()) == 1
            unused = alone and int(flat.count_nonzero()) == int(here.count_nonzero())
            made = kind is Kind.OPTIMIZER_STATE and unused and not _may_be_padded(here, count)
            if made or (due is not None and _rest_is(flat, here, due.value, self.case.tp)):
                self._found(named, what, storage.nbytes(), here.nbytes)

    def _sharded(self, name: str) -> bool:
        entry = self.report.entries.get(name, self.params[name])
        return is_sharded(entry, self.case)

    def _found(self, name: str, what: str, storage: int, expected: int) -> None:
        detail = Misheld(Fault.STORAGE, storage=storage, expected=expected, what=what)
        mismatch = Mismatch(name, Kind.SHARDING, self.report.rank, detail=detail)
        self.report.mismatches.append(mismatch)


def _same(tensor: Tensor) -> tuple[int, torch.Size]:
    """By which a second name of a tensor is known."""
    return tensor.data_ptr(), tensor.shape


def _may_be_padded(here: Tensor, count: int) -> bool:
    """Whether zeros after a part may be padding, or a second tensor of its size, though the whole
    one, of so many elements, would fill its storage."""
    begins = not here.storage_offset() and here.is_contiguous()
    return begins and (count % BLOCK == 0 or count == 2 * here.numel())


def _is_whole(tensor: Tensor, full: Tensor) -> bool:
    """Whether it has the numbers of the whole one, and its dtype leaves any: small ones are all
    zeros in a short one."""
    if not tensor.numel() or not has_numbers(tensor, full):
        return False
    return tensor.dtype == full.dtype or bool((tensor.double() != tensor.double().max()).any())


def _rest_is(flat: Tensor, here: Tensor, due: Tensor, degree: int) -> bool:
    """Whether a storage holds, beside this rank's part, which is in its place, the other ranks' of
    the whole tensor: as that lies in memory, or part after part along one of its dims."""
    inside = torch.zeros(flat.shape, dtype=torch.bool, device=flat.device)
    inside.as_strided(here.shape, here.stride(), here.storage_offset()).fill_(True)
    own, rest = flat.double()[inside], flat.double()[~inside]
    each = (due.double().chunk(degree, dim) for dim in range(due.ndim))
    for order in (torch.cat([part.flatten() for part in parts]) for parts in each):
        others = order[~inside]
        if _near(own, order[inside]) and _near(rest, others) and not _repeats(others, own):
            return True
    return False


def _near(actual: Tensor, due: Tensor) -> bool:
    return bool((actual - due).norm() < ALIKE * due.norm())


def _repeats(others: Tensor, own: Tensor) -> bool:
    """Whether the other ranks' parts are this one's once more."""
    whole = others.numel() % own.numel() == 0
    return whole and all(_near(part, own) for part in others.split(own.numel()))
