"""The sentences of `tpcheck/causes/steps.py`."""

from __future__ import annotations

from tests.unit.report.diagnoses.said import Said
from tpcheck.causes.steps import (
    BeginsAnew,
    FrozenMoves,
    GradientOfOwnPart,
    NoState,
    NotStepped,
    NotZeroed,
    OverflowIgnored,
    OverflowNotShared,
    UpdateScaled,
)
from tpcheck.causes.where import Subject
from tpcheck.vocabulary import Kind

PARAM = Subject(Kind.PARAM, "up.weight@step2")
STATE = Subject(Kind.OPTIMIZER_STATE, "up.weight.exp_avg")

SAID: list[Said] = [
    (
        OverflowNotShared(STATE, "up.weight", (0,), (1, 2)),
        "optimizer_state up.weight.exp_avg: ranks [1, 2] take the step that ranks [0] leave out, "
        "who alone have an infinite gradient of up.weight: that there is one was not reduced over "
        "the ranks",
        {"gradient": "up.weight", "owners": [0], "ranks": [1, 2]},
    ),
    (
        OverflowIgnored(STATE, "down.bias"),
        "optimizer_state up.weight.exp_avg changes on all ranks in a step that is to be left out, "
        "since a gradient of down.bias is infinite",
        {"gradient": "down.bias"},
    ),
    (
        OverflowIgnored(PARAM, "up.weight", (1,)),
        "param up.weight@step2 is not finite on ranks [1] after a step that is to be left out, "
        "since a gradient of up.weight is infinite",
        {"gradient": "up.weight", "ranks": [1]},
    ),
    (
        FrozenMoves(PARAM, (0, 1)),
        "param up.weight@step2 takes no gradient, and the reference's steps leave it as it is: "
        "those on ranks [0, 1] change it",
        {"ranks": [0, 1]},
    ),
    (
        NotStepped(PARAM, (1,), others=True),
        "param up.weight@step2 is on ranks [1] what it was before the step",
        {"ranks": [1], "others": True},
    ),
    (
        NotStepped(PARAM, (0, 1), others=False, buffer=True),
        "param up.weight@step2 is what was loaded: no forward has updated it",
        {"buffer": True},
    ),
    (
        NotStepped(STATE, (0, 1), others=False),
        "optimizer_state up.weight.exp_avg is what it was before the step",
        {"others": False},
    ),
    (
        BeginsAnew(STATE, (0,), others=True),
        "optimizer_state up.weight.exp_avg is on ranks [0] what a first step would leave: earlier "
        "ones are lost",
        {"ranks": [0]},
    ),
    (
        GradientOfOwnPart(STATE, (0, 1), clipped=False),
        "optimizer_state up.weight.exp_avg: summed over ranks [0, 1] the update is right: each "
        "steps by the gradient of its own part, which is not clipped",
        {"ranks": [0, 1], "clipped": False},
    ),
    (
        NotZeroed(Subject(Kind.PARAM_GRAD, "up.weight@step2")),
        "param_grad up.weight@step2 has the gradient of the step before in it",
        {},
    ),
    (
        UpdateScaled(PARAM, {0: 2.0, 1: 2.0}, world=True),
        "param up.weight@step2 changes by 2 times the update on ranks [0, 1]",
        {"world": True},
    ),
    (
        UpdateScaled(PARAM, {0: 0.5, 1: 0.75}),
        "param up.weight@step2 changes by a factor of each rank's own times the update: "
        "0.5 on rank 0, 0.75 on rank 1",
        {"world": False},
    ),
    (
        NoState(STATE, 1),
        "optimizer_state up.weight.exp_avg: the optimizer keeps none of it on rank 1",
        {"rank": 1},
    ),
]  # fmt: skip
