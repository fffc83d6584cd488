"""What a forward returns, as names and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tpcheck.errors import InvalidArgument
from tpcheck.protocol.conventions import named_outputs, scheduled_outputs

ONE = torch.ones(2)


@dataclass
class Result:
    loss: Any
    hidden: Any = None


class Pair(NamedTuple):
    y: Any
    aux: Any


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (ONE, {"output"}),
        ((ONE, [ONE, None]), {"output.0", "output.1.0"}),
        (Pair(ONE, "text"), {"output.0"}),
        ({"y": ONE, 3: {"aux": (ONE,)}}, {"y", "3.aux.0"}),
        (Result(ONE, (ONE, Result(1.5))), {"loss", "hidden.0", "hidden.1.loss"}),
        ((ONE, Result(ONE)), {"output.0", "output.1.loss"}),
        ((ONE, object()), {"output.0"}),
        ({}, set()),
    ],
)
def test_a_result_has_names(returned: Any, names: set[str]) -> None:
    assert set(named_outputs(returned)) == names


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (2.5, torch.float64),
        (2**60 + 1, torch.int64),
        (True, torch.bool),
        (1j, torch.complex64),
        (np.float32(2.5), torch.float32),
        (np.arange(3), torch.int64),
    ],
    ids=repr,
)
def test_a_number_is_a_tensor(number: Any, dtype: torch.dtype) -> None:
    found = named_outputs({"n": number})["n"]
    assert (found.dtype, found.tolist()) == (dtype, np.asarray(number).tolist())


@pytest.mark.parametrize("returned", [{"a": {"b": ONE}, "a.b": ONE}, {1: ONE, "1": ONE}], ids=repr)
def test_two_tensors_of_one_name_are_refused(returned: Any) -> None:
    with pytest.raises(InvalidArgument, match="two tensors that are both called"):
        named_outputs(returned)


@pytest.mark.parametrize("returned", [None, "text", object()], ids=lambda v: type(v).__name__)
def test_a_result_that_can_hold_no_tensor_is_refused(returned: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"returned a {type(returned).__name__}"):
        named_outputs(returned)


@pytest.mark.parametrize("returned", [None, "text", object()], ids=lambda v: type(v).__name__)
def test_of_what_a_schedule_returns_the_microbatch_is_named(returned: Any) -> None:
    assert scheduled_outputs([ONE, {}], 2) == [{"output": ONE}, {}]
    kind = type(returned).__name__
    with pytest.raises(InvalidArgument) as caught:
        scheduled_outputs([ONE, returned], 2)
    assert str(caught.value) == (
        f"of microbatch 1 the check's schedule returned a {kind}; return a tensor, a tuple or a "
        "dict of tensors, or {} on a rank that has none"
    )


@pytest.mark.parametrize(("results", "given"), [(None, "a NoneType"), ([ONE], "a list of 1")])
def test_a_schedule_that_loses_a_microbatch_is_told_what_to_return(
    results: Any, given: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"returned {given} for 2 microbatches.*{{}} on a"):
        scheduled_outputs(results, 2)
