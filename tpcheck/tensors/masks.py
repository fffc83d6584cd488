"""Random masks, as dropout draws them: the operators that draw one, and what one gave.

A mask is an outcome, true or false, of each element with one chance: by `bernoulli`, by
`native_dropout`, or of uniform numbers that are compared with a threshold.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tpcheck.tensors.lanes import drawn_once

#: How far apart two chances may be that are meant to be one, where both are Python's numbers; a
#: tensor rounds its own. More would let a wrong rate pass.
APART = 2.0**-20
#: Bits that two masks must have in common before they are taken for one. Fewer, and two ranks draw
#: the same by chance in a long run; more, and small cases say nothing.
TELLING = 32.0

_BERNOULLI = frozenset({"bernoulli", "bernoulli_"})
_UNIFORM = frozenset({"rand", "rand_like", "uniform_"})
_BELOW, _ABOVE = frozenset({"lt", "le"}), frozenset({"gt", "ge"})


@dataclass(frozen=True)
class Chance:
    """Of true, in each element of a mask.

    Args:
        kept: whether true is what is kept, as far as the operator says: numbers below a threshold
            are dropped. Asked where true and false are alike only.
        apart: how far it may be off, since it was given in a dtype that rounds.
    """

    true: float
    kept: bool = True
    apart: float = APART


#: (outcome, its chance, the generator's state before) → what is to stand in its place, if anything
Instead = Callable[[Tensor, Chance, bytes], Tensor | None]


@dataclass(frozen=True)
class Mask:
    """What a forward of the reference drew.

    Args:
        true: bool, the full mask: where the outcome is true.
    """

    true: Tensor
    chance: Chance

    def drawn_as(self, chance: Chance) -> Tensor | None:
        """The same mask for somebody whose outcome has this chance: what is kept for one may be
        what is dropped for the other. None: it is of another rate."""
        own = self.chance.true
        apart = max(chance.apart, self.chance.apart)
        same = abs(chance.true - own) <= apart
        turned = abs(chance.true - (1.0 - own)) <= apart
        if same and turned:
            same = chance.kept == self.chance.kept
        if same:
            return self.true
        return ~self.true if turned else None


class Drawing:
    """Runs operators that draw masks, and puts others in place of their outcomes.

    Args:
        instead: what to put there.
    """

    def __init__(self, instead: Instead) -> None:
        self._instead = instead
        self._uniform: dict[int, tuple[Tensor, bytes]] = {}  # memory → drawn, still to be compared
        self._spent: dict[int, Tensor] = {}  # memory → numbers that were
        self.others: set[str] = set()  # operators that drew what is not a mask

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator."""
        if not concerns(func):
            if (self._uniform or self._spent) and not func.is_view:
                self._spend(args)
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in _BELOW | _ABOVE:
            return self._compared(func, name, args, kwargs)
        before = _state(kwargs.get("generator"), args)
        with drawn_once():
            out = func(*args, **kwargs)
        if (name in _UNIFORM and args[1:] in ((), (0.0, 1.0))) or name == "rand":
            self._uniform[_memory(out)] = (out, before)
        elif name in _BERNOULLI:
            self._bernoulli(out, _chance_of(func, args, kwargs), before)
        elif name == "native_dropout":
            self._dropped(out, args, before)
        else:
            self.others.add(name)
        return out

    @property
    def unread(self) -> set[str]:
        """The operators that drew what is not a mask, as far as is known."""
        return self.others | ({"rand"} if self._uniform else set())

    def _spend(self, args: tuple[Any, ...]) -> None:
        """Uniform numbers that are used for anything else are not a mask's."""
        for tensor in tree_leaves(args):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                memory = _memory(tensor)
                if self._uniform.pop(memory, None) is not None or memory in self._spent:
                    self.others.add("rand")

    def _compared(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Uniform numbers on one side of a threshold."""
        out = func(*args, **kwargs)
        if not self._uniform:
            self._spend(args)
            return out
        numbers, threshold = args[:2]
        turned = isinstance(threshold, Tensor) and _memory(threshold) in self._uniform
        if turned:
            numbers, threshold = threshold, numbers
        known = self._uniform.get(_memory(numbers))
        if known is None:
            self._spend(args)
            return out
        at, whole = _one_number(threshold), known[0].shape == numbers.shape
        if at is None or not 0.0 < at < 1.0 or not whole or out.dtype != torch.bool:
            self._spend(args)
            return out
        del self._uniform[_memory(numbers)]
        self._spent[_memory(numbers)] = known[0]
        below = (name in _BELOW) != turned
        chance = Chance(at if below else 1.0 - at, not below, _rounding(threshold))
        other = self._instead(out, chance, known[1])
        return out if other is None else other.clone()

    def _bernoulli(self, out: Tensor, chance: Chance | None, before: bytes) -> None:
        if chance is None:
            self.others.add("bernoulli")
        elif 0.0 < chance.true < 1.0:
            other = self._instead(out.bool(), chance, before)
            if other is not None:
                out.copy_(other)

    def _dropped(self, out: Any, args: tuple[Any, ...], before: bytes) -> None:
        x, rate, train = args
        result, kept = out
        if train is False or not 0.0 < rate < 1.0:
            return
        other = self._instead(kept, Chance(1.0 - rate), before)
        if other is not None:
            kept.copy_(other)
            result.copy_(x * other / (1.0 - rate))


@functools.cache
def concerns(func: Any) -> bool:
    """Whether an operator draws random numbers, or may compare them with a threshold."""
    return is_random(func) or func.overloadpacket.__name__ in _BELOW | _ABOVE


@functools.cache
def is_random(func: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def bits_of(chance: float) -> float:
    """What an element says that is the same in two masks: less, the rarer one of its outcomes."""
    return -math.log2(chance**2 + (1.0 - chance) ** 2)


def on_paper() -> bool:
    """Whether operators say no more than the shape of what they would give, as where DTensor asks
    how a result is placed."""
    fake: Any = torch._C._TorchDispatchModeKey.FAKE
    return torch._C._get_dispatch_mode(fake) is not None


def in_backward() -> bool:
    """Whether autograd is at work: a mask is drawn there by what computes a forward again."""
    return torch._C._current_graph_task_id() != -1


def _memory(tensor: Tensor) -> int:
    """Of a tensor, whichever of its names in Python: an address, as long as it is kept."""
    return int(tensor.untyped_storage()._cdata)


def _chance_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Chance | None:
    """Of `bernoulli` in each of its forms; None where it is not one number."""
    of_itself = func.overloadpacket.__name__ == "bernoulli" and len(args) == 1
    given = args[0] if of_itself else args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    true = _one_number(given)
    return None if true is None else Chance(true, apart=_rounding(given))


def _rounding(given: Any) -> float:
    """How far a rate may be off that was given so."""
    floats = isinstance(given, Tensor) and given.is_floating_point()
    return max(APART, torch.finfo(given.dtype).eps) if floats else APART


def _one_number(given: Any) -> float | None:
    """The number that every element is."""
    if not isinstance(given, Tensor):
        return float(given)
    if not given.numel():
        return 0.0
    low, high = torch.aminmax(given.detach())
    return float(low) if bool(low == high) else None


def drops_inside(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator drops elements of what it holds within, as fused attention does on a GPU:
    its mask is never a tensor."""
    at = _rate_of_attention(func)
    if at is None:
        return False
    return bool(kwargs.get("dropout_p", args[at] if at < len(args) else 0.0))


@functools.cache
def _rate_of_attention(func: Any) -> int | None:
    """The place of its rate of dropout among the arguments of one kernel for all of attention."""
    schema = getattr(func, "_schema", None)
    if schema is None or "attention" not in schema.name or "math" in schema.name:
        return None
    if schema.name == "aten::scaled_dot_product_attention":  # it draws by operators of its own
        return None
    names = [argument.name for argument in schema.arguments]
    return names.index("dropout_p") if "dropout_p" in names else None


def _state(generator: torch.Generator | None, args: tuple[Any, ...]) -> bytes:
    """A digest of what an operator is about to draw from."""
    if generator is None:
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is not None and first.is_cuda:
            generator = torch.cuda.default_generators[first.device.index]
        else:
            generator = torch.default_generator
    return hashlib.blake2b(generator.get_state().numpy().tobytes(), digest_size=16).digest()
