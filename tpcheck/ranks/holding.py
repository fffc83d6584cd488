"""What a rank keeps in memory of a model: its parameters, their gradients, the optimizer's state.

A tensor keeps all of its storage alive: the bytes of the distinct storages are what is held, and
those of the distinct tensors' shapes what is due. They are the same but for padding and buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpcheck.case import Case
from tpcheck.evidence import Misheld
from tpcheck.placement import Entry, is_sharded
from tpcheck.protocol.messages import RankReport
from tpcheck.protocol.optimizing import parameter_of
from tpcheck.protocol.scaling import SCALE
from tpcheck.tensors.live import local
from tpcheck.tensors.names import InPass, Pass, parameters_of
from tpcheck.verdict import Mismatch
from tpcheck.vocabulary import Fault, Kind

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer_state"

#: Elements that padding may add to one tensor, and that a whole one has at least. Alignment of an
#: allocator's is less, and few numbers may be others' by chance; with more, what small cases keep
#: of whole tensors would not show.
PADDING = 32


class Holding:
    """Notes what is held in the rank's report, and what keeps a whole tensor where a shard is due.

    Args:
        params: name → how each parameter is placed.
        full: name → full parameter.
    """

    def __init__(
        self,
        case: Case,
        params: Mapping[str, Entry],
        full: Mapping[str, Tensor],
        report: RankReport,
    ) -> None:
        self.case, self.params, self.full, self.report = case, params, full, report

    def parameters(self, module: Any) -> None:
        """As the loader left them; their own storages are the loader's to judge."""
        if isinstance(module, nn.Module):
            self._note(PARAMETERS, parameters_of(module))

    def gradients(self, grads: Mapping[str, Tensor | None], step: int) -> None:
        """Of the parameters, by their names."""
        there = {name: grad for name, grad in grads.items() if grad is not None}
        self._note(GRADIENTS, there)
        self._judge(there, step, "gradient")

    def state(self, state: Mapping[str, Tensor], step: int) -> None:
        """Of the optimizer, as `PARAMETER.KEY`."""
        there = {name: tensor for name, tensor in state.items() if name != SCALE}
        self._note(STATE, there)
        self._judge(there, step, "optimizer's state")

    def elsewhere(self, module: Any) -> None:
        """What the module keeps besides: no whole parameter of which the rank has a shard."""
        if not isinstance(module, nn.Module):
            return
        sharded = {
            name: full
            for name, full in self.full.items()
            if full.numel() > PADDING and full.is_floating_point() and self._sharded(name)
        }
        for where, tensor in _attributes(module):
            for name, full in sharded.items():
                alike = tensor.shape == full.shape and tensor.is_floating_point()
                if alike and torch.equal(tensor.to(full), full):
                    self._found(name, f"attribute {where}", tensor.nbytes, 0)

    def _note(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _own(tensors)}
        due = {(t.data_ptr(), t.shape): t.nbytes for t in _own(tensors)}
        most = self.report.bytes.get(what, (0, 0))
        self.report.bytes[what] = max(most, (sum(held.values()), sum(due.values())))

    def _judge(self, tensors: Mapping[str, Tensor], step: int, what: str) -> None:
        users: dict[int, set[tuple[int, ...]]] = {}
        for tensor in _own(tensors):
            view = (tensor.data_ptr(), *tensor.shape)
            users.setdefault(tensor.untyped_storage().data_ptr(), set()).add(view)
        for name, tensor in tensors.items():
            of = name if name in self.full else parameter_of(name, self.full)
            here = local(tensor)
            if of is None or not self._sharded(of) or not here.numel():
                continue
            storage = here.untyped_storage()
            whole = self.full[of].numel() * here.element_size()
            spare = whole - here.nbytes
            if (
                len(users[storage.data_ptr()]) == 1
                and storage.nbytes() >= whole
                and spare > PADDING * here.element_size()
            ):
                self._found(str(InPass(name, Pass(0, step))), what, storage.nbytes(), here.nbytes)

    def _sharded(self, name: str) -> bool:
        entry = self.report.entries.get(name, self.params[name])
        return is_sharded(entry, self.case)

    def _found(self, name: str, what: str, storage: int, expected: int) -> None:
        detail = Misheld(Fault.STORAGE, storage=storage, expected=expected, what=what)
        mismatch = Mismatch(name, Kind.SHARDING, self.report.rank, detail=detail)
        self.report.mismatches.append(mismatch)


def _own(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    return [local(tensor) for tensor in tensors.values() if not tensor.is_meta]


def _attributes(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that its modules keep in attributes, alone or in a list, tuple or dict; not what they
    register."""
    for prefix, owner in module.named_modules():
        for name, value in list(vars(owner).items()):
            where = f"{prefix}.{name}" if prefix else name
            if name.startswith("_") and isinstance(value, dict) and name in _REGISTERED:
                continue
            inside = value.values() if isinstance(value, dict) else value
            several = list(inside) if isinstance(value, (dict, list, tuple)) else [value]
            yield from ((where, each.detach()) for each in several if isinstance(each, Tensor))


_REGISTERED = ("_parameters", "_buffers", "_modules")
