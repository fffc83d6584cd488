"""Twelve faults of a language model in training, each of which begins at some step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from fixtures.mutants.clipping import (
    CountsReplicas,
    InfinitySummed,
    OnOneRankOnly,
    ShardedOnOneRank,
)
from fixtures.parallel import collectives
from fixtures.parallel.clipping import Clipping
from fixtures.parallel.cross_entropy import VocabParallelCrossEntropy
from fixtures.parallel.dropout import (
    DroppingAttention,
    DroppingBlock,
    DroppingLanguageModel,
    DroppingMLP,
)
from fixtures.parallel.norm import LayerNorm, RMSNorm
from fixtures.parallel.optimizing import MainParameters, sharded
from properties.training import adamw
from tests.catalogue.long_run.model import candidate, cosine, spec
from tpcheck import Case, Check
from tpcheck.specs.reference import BlockDims


@dataclass(frozen=True)
class Fault:
    """One edit of the right run.

    Args:
        model, clipping, optimizer: the wrong part; the others are right.
        named: diagnoses of which one must be given.
    """

    name: str
    mechanism: str
    named: tuple[str, ...]
    sequence_parallel: bool
    model: type[DroppingLanguageModel] = DroppingLanguageModel
    clipping: Clipping = field(default_factory=lambda: Clipping(2.0))
    optimizer: Callable[[nn.Module, DeviceMesh], Any] | None = None

    def check(self, case: Case, steps: int, begins: int) -> Check:
        """What must fail in this case at step `begins`, from 0."""
        asked = {"sequence_parallel": self.sequence_parallel}
        return Check(
            spec([case], steps, order=self.clipping.order, **asked),
            candidate=candidate(begins, self.model, **asked),
            name=self.name,
            clip=Later(self.clipping),
            optimizer=self.optimizer or (lambda module, mesh: Scheduled(module)),
            processes=True,
        )


class Scheduled(MainParameters):
    """`MainParameters` of AdamW, whose rate falls."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module, adamw)
        self.module = module
        self.schedule = cosine(self.inner)

    def step(self) -> None:
        super().step()
        self.schedule.step()


@dataclass(frozen=True)
class Later:
    """Clipping that is right until the clock strikes."""

    wrong: Clipping

    def __call__(self, module: nn.Module, mesh: DeviceMesh, most: float) -> Tensor:
        clipping = self.wrong if module.clock.struck else Clipping(self.wrong.order)
        return clipping(module, mesh, most)


#: The run without a fault, by whether it is sequence parallel.
RIGHT = {sp: Fault("long-run-sp" if sp else "long-run", "", (), sp) for sp in (False, True)}
FAULTS: list[Fault] = []


def _model(name: str, named: str, *, sequence_parallel: bool = False) -> Callable[[Any], Any]:
    """Registers a wrong model."""

    def register(cls: type[DroppingLanguageModel]) -> type[DroppingLanguageModel]:
        about = (name, cls.__doc__ or "", tuple(named.split()), sequence_parallel)
        FAULTS.append(Fault(*about, model=cls))
        return cls

    return register


def _clips(name: str, named: str, clipping: Clipping) -> None:
    """Registers a wrong clipping."""
    about = (name, type(clipping).__doc__ or "", tuple(named.split()), False)
    FAULTS.append(Fault(*about, clipping=clipping))


def _steps(name: str, named: str, *, sequence_parallel: bool = False) -> Callable[[Any], Any]:
    """Registers a wrong optimizer, made of the module."""

    def register(cls: type[Scheduled]) -> type[Scheduled]:
        about = (name, cls.__doc__ or "", tuple(named.split()), sequence_parallel)
        FAULTS.append(Fault(*about, optimizer=lambda module, mesh: cls(module)))
        return cls

    return register


# ---- gradients


class _PartialNorm(LayerNorm):
    def share(self, parameter: Tensor) -> Tensor:
        return parameter if self.clock.struck else super().share(parameter)


@_model("norm-gradient-partial", "partial-not-reduced", sequence_parallel=True)
class NormGradientPartial(DroppingLanguageModel):
    """The last norm has the gradient of the rank's own tokens."""

    def make_norm(self, dims: BlockDims, hidden: int) -> RMSNorm:
        return _PartialNorm(hidden, group=self.group, sequence_parallel=self.sequence_parallel)


@_model("tied-gradient-halved", "averaged-not-summed")
class TiedGradientHalved(DroppingLanguageModel):
    """The gradient of the weight with two names, of which each rank has all, is averaged over
    ranks: half of it at tp=2."""

    def tie(self) -> None:
        super().tie()
        self.head.weight.register_hook(self.halved)

    def halved(self, grad: Tensor) -> Tensor:
        return grad / self.degree if self.clock.struck else grad


# ---- the norm of all gradients

_clips("replicas-counted-twice-in-the-norm", "summed-twice", CountsReplicas(2.0))
_clips("sharded-parameter-counted-on-one-rank", "missing-all-reduce", ShardedOnOneRank(2.0))
_clips("infinity-norm-summed", "summed-twice", InfinitySummed(math.inf))
_clips("clip-on-one-rank-only", "replicas-differ", OnOneRankOnly(2.0))


# ---- masks


class _SharedBetweenHeads(DroppingAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend_dropped(q, k, v) if self.clock.struck else super().attend(q, k, v)


class _SharedBlock(DroppingBlock):
    attention_class = _SharedBetweenHeads


@_model("mask-shared-where-it-must-differ", "rng-not-coordinated")
class MaskShared(DroppingLanguageModel):
    """Ranks drop the same elements of different heads."""

    block_class = _SharedBlock


class _OwnOfCopies(DroppingMLP):
    def drop_copy(self, x: Tensor) -> Tensor:
        return self.drop_part(x) if self.clock.struck else super().drop_copy(x)


class _OwnBlock(DroppingBlock):
    mlp_class = _OwnOfCopies


@_model("mask-different-where-it-must-be-shared", "rng-not-coordinated")
class MaskDifferent(DroppingLanguageModel):
    """Ranks drop different elements of what all of them have."""

    block_class = _OwnBlock


# ---- the loss


class _Averaged(VocabParallelCrossEntropy):
    def reduced(self, loss: Tensor, targets: Tensor) -> Tensor:
        own = super().reduced(loss, targets)
        if not self.clock.struck:
            return own
        return collectives.reduce_from_tp(own / self.degree, self.group)


@_model("loss-averaged-over-ranks", "averaged-not-summed")
class LossAveraged(DroppingLanguageModel):
    """The mean over ranks, which all have the same loss, divides every gradient by R."""

    loss_class = _Averaged


class _MeanOverAll(VocabParallelCrossEntropy):
    def reduced(self, loss: Tensor, targets: Tensor) -> Tensor:
        if not self.clock.struck:
            return super().reduced(loss, targets)
        return loss.sum() / targets.numel()


@_model("loss-averaged-by-a-wrong-count", "averaged-not-summed")
class LossByAWrongCount(DroppingLanguageModel):
    """The mean divides by all tokens, those without a loss among them."""

    loss_class = _MeanOverAll


# ---- the optimizer


@_steps("optimizer-state-of-a-replica-not-updated", "replicas-differ")
class NotUpdated(Scheduled):
    """On the last rank the step leaves out what all ranks have."""

    def take(self, copy: nn.Parameter, parameter: nn.Parameter) -> None:
        super().take(copy, parameter)
        last = dist.get_rank(self.module.group) == self.module.degree - 1
        if self.module.clock.struck and last and parameter not in set(sharded(self.module)):
            copy.grad = None


class _Noting(LayerNorm):
    def share(self, parameter: Tensor) -> Tensor:
        shared = super().share(parameter)
        shared.register_hook(partial(self.note, parameter))
        return shared

    def note(self, parameter: Tensor, grad: Tensor) -> None:
        """Keeps the gradient of the rank's own tokens, as a buffer of gradients has it."""
        parameter.main_grad = grad


class _NotingModel(DroppingLanguageModel):
    def make_norm(self, dims: BlockDims, hidden: int) -> RMSNorm:
        return _Noting(hidden, group=self.group, sequence_parallel=self.sequence_parallel)


class Unreduced(Scheduled):
    """The last norm's main gradient is that of the rank's own tokens; the reduced one is not
    taken."""

    def take(self, copy: nn.Parameter, parameter: nn.Parameter) -> None:
        super().take(copy, parameter)
        noted = getattr(parameter, "main_grad", None)
        if self.module.clock.struck and noted is not None:
            copy.grad = noted.to(copy.dtype)


FAULTS.append(
    Fault(
        "main-gradient-left-unreduced",
        Unreduced.__doc__ or "",
        ("partial-not-reduced", "replicas-differ"),
        sequence_parallel=True,
        model=_NotingModel,
        optimizer=lambda module, mesh: Unreduced(module),
    )
)
