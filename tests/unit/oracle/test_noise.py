"""Noisy runs at once: they are as far off as runs alone, or are made alone."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.oracle.test_expected import CASE, DIMS, Routed
from tpcheck import Case, Layout, Scaling, Spec, Training, specs
from tpcheck.bounds import lanes
from tpcheck.oracle import noise
from tpcheck.oracle.batches import Batch
from tpcheck.oracle.effort import CLOSER, CONFIRM
from tpcheck.oracle.noise import Noise
from tpcheck.oracle.pose import Posed, pose

ATTENTION = {
    "batch": 2, "seq": 3, "hidden": 4, "heads": 4, "kv_heads": 2, "head_dim": 2, "norm": "rms",
    "residual": True, "bias": True, "qk_norm": True, "rotary": True, "causal": True,
}  # fmt: skip
Errors = list[Exception]


def here(runs: Any, *_: Any, **__: Any) -> list[Any]:
    """As `over_cores`, in this process."""
    return [run() for run in runs]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Errors]:
    """Why runs were not made at once."""
    monkeypatch.setattr(noise, "over_cores", here)
    found: Errors = []
    at_once = Noise._at_once

    def noted(own: Noise, batch: Batch) -> Any:
        try:
            return at_once(own, batch)
        except Exception as error:
            found.append(error)
            raise

    monkeypatch.setattr(Noise, "_at_once", noted)
    yield found


def alone(spec: Spec, case: Case, monkeypatch: pytest.MonkeyPatch) -> Posed:
    """Under the bounds of runs that are made one after the other."""
    with monkeypatch.context() as patched:
        patched.setattr(noise, "MOST_NUMBERS", 0)
        return pose(spec, case, CONFIRM)


def spread(posed: Posed) -> dict[str, Tensor]:
    targets = (t for problem in posed.problems for t in problem.targets)
    return {f"{t.kind} {t.name}": t.spread.sigma for t in targets}


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(list(parameters.values()), lr=2.0**-5)


TRAINED = replace(specs.mlp(), training=Training(adamw, steps=2, main=torch.float32))
DROPPED = replace(specs.mlp(dropout=(0.5,)), training=TRAINED.training)
SCALED = Training(adamw, steps=2, main=torch.float32, scaling=Scaling(initial=2.0**4))
SUBJECTS: dict[str, tuple[Spec, dict[str, Any]]] = {
    "mlp": (specs.mlp(), DIMS),
    "attention": (specs.attention(), ATTENTION),
    "trained": (TRAINED, DIMS),
    "trained, with dropout": (DROPPED, DIMS | {"dropout": 0.5}),
    "of a loss that is scaled": (replace(TRAINED, training=SCALED), DIMS),
}


#: In each run; all take a minute.
SEEN = {("mlp", "bfloat16"), ("attention", "float64")}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        one if one in SEEN else pytest.param(*one, marks=pytest.mark.sweep)
        for one in product(SUBJECTS, ("float64", "float32", "bfloat16"))
    ],
)
def test_they_are_as_far_off(
    monkeypatch: pytest.MonkeyPatch, apart: Errors, name: str, dtype: str
) -> None:
    spec, dims = SUBJECTS[name]
    ratios = []
    for seed in range(3):
        step = spec.training is None
        case = Case(dims=dims, dtype=dtype, step=step, mesh={"tp": 2}, seed=seed)
        found = spread(pose(spec, case, CONFIRM))
        for key, right in spread(alone(spec, case, monkeypatch)).items():
            own = found[key]
            assert torch.equal(own.isfinite(), right.isfinite()) and torch.equal(own > 0, right > 0)
            if bool((right > 0).any()):
                ratios.append(math.log(own.norm() / right.norm()))
    assert not apart
    # of three times 24 to 48 runs, whose errors all tensors have in common
    assert abs(sum(ratios) / len(ratios)) < math.log(1.25)


@pytest.mark.parametrize("wrong", [2.0, 0.5])
def test_what_is_drawn_too_large_or_small_is_seen(
    monkeypatch: pytest.MonkeyPatch, apart: Errors, wrong: float
) -> None:
    of = lanes.Drawn.of
    monkeypatch.setattr(lanes.Drawn, "of", lambda *given: of(*given) * wrong)
    with pytest.raises(AssertionError, match="sum"):
        test_they_are_as_far_off(monkeypatch, apart, "mlp", "float32")


class Aliased(nn.Module):
    """Reads its weight through a list, too, which nobody knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.own = [self.up.weight]

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x) @ self.own[0]


class Hooked(nn.Module):
    """A hook that holds on to the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        first = self
        self.up.register_forward_hook(lambda module, given, out: first.down(out))

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x)


class Decides(nn.Module):
    """Whether a number that rounding moves is above another decides."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        return y * 2.0 if bool(y[0, 0] / 3 * 3 > y[0, 0]) else y + y


class ThroughNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.from_numpy(x.detach().numpy().copy()).abs().max()
        return self.up(x) * scale


class Handles(nn.Module):
    """Can't be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.handle = (number for number in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x)


@pytest.mark.parametrize("cls", [Aliased, Hooked, Decides, ThroughNumpy, Handles, Routed])
def test_what_can_not_be_at_once_is_made_alone(
    monkeypatch: pytest.MonkeyPatch, apart: Errors, cls: Callable[[], nn.Module]
) -> None:
    spec = Spec(
        name="odd",
        cases=[Case()],
        reference=lambda case: cls(),
        inputs=lambda case, draw: {"x": draw("x", 6, 4)},
        layout=lambda case: Layout(),
    )
    case = replace(CASE, dims={}, microbatches=1, dtype="float32")
    found = spread(pose(spec, case, CONFIRM))
    assert apart
    for key, right in spread(alone(spec, case, monkeypatch)).items():
        assert torch.equal(found[key], right)


def test_large_tensors_are_not_held_several_times(
    monkeypatch: pytest.MonkeyPatch, apart: Errors
) -> None:
    """A table of which few rows are read has many numbers, and its results few."""
    asked: list[Batch] = []
    monkeypatch.setattr(Noise, "_at_once", lambda own, batch: asked.append(batch))
    rows = noise.MOST_NUMBERS // noise.AT_ONCE // 2
    spec = Spec(
        name="table",
        cases=[Case()],
        reference=lambda case: nn.Embedding(rows, 4),
        inputs=lambda case, draw: {"ids": torch.tensor([0, 2])},
        layout=lambda case: Layout(),
    )
    pose(spec, replace(CASE, dims={}, microbatches=1, dtype="float64"), CLOSER)
    assert not asked


def test_what_ends_its_process_is_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator does that reads memory which is not there."""
    driver = os.getpid()

    def crash(own: Noise, batch: Batch) -> Any:
        assert os.getpid() != driver
        os.kill(os.getpid(), signal.SIGSEGV)

    spec, dims = SUBJECTS["mlp"]
    case = Case(dims=dims, dtype="float32", mesh={"tp": 2})
    right = spread(alone(spec, case, monkeypatch))
    monkeypatch.setattr(Noise, "_at_once", crash)
    for key, found in spread(pose(spec, case, CONFIRM)).items():
        assert torch.equal(found, right[key])
