"""Bytes that a rank holds, and those that the layout gives it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from tpcheck.bounds.spread import Spread
from tpcheck.case import Case
from tpcheck.evidence import Misheld
from tpcheck.placement import Entry, Only, Replicate, Shard
from tpcheck.protocol.messages import RankReport, Work
from tpcheck.protocol.problem import Target
from tpcheck.ranks.holding import Holding
from tpcheck.ranks.memory import attributes
from tpcheck.vocabulary import Kind

CASE = Case(mesh={"tp": 2})
FULL = torch.arange(8.0).reshape(4, 2)
WHOLE, HALF = 8 * 4, 4 * 4  # bytes


def held(
    own: Tensor, says: Entry, named: bool = True, live: Entry | None = None, **state: Tensor
) -> Mapping[str, tuple[int, int]]:
    """What is noted of a model with one parameter, of its gradient, and of a state of it."""
    given: dict[str, Any] = dict.fromkeys(field.name for field in fields(Work))
    given |= {"case": CASE, "params": {"w": says}, "named": frozenset({"w"} if named else ())}
    work, report = Work(**given), RankReport(1)
    report.entries["w"] = says if live is None else live
    module = nn.Module()
    module.w = nn.Parameter(own)
    spread = Spread(torch.ones_like(FULL), 1, 1, 1.0)
    kept = {f"w.{key}": tensor for key, tensor in state.items()}
    targets = {
        (Kind.OPTIMIZER_STATE, "w.mean"): Target(
            Kind.OPTIMIZER_STATE, "w.mean", says, torch.float32, FULL, spread
        )
    }
    holding = Holding(work, {"w": FULL}, targets, report)
    holding.parameters(module)
    holding.gradients({"w": torch.ones_like(own)}, 0)
    if kept:
        holding.state(kept, 0)
    return report.bytes


@pytest.mark.parametrize(
    ("own", "says", "noted"),
    [
        (FULL[2:].clone(), Shard(0), (HALF, HALF)),
        (FULL.clone(), Shard(0), (WHOLE, HALF)),
        (FULL[2:].clone(), Replicate(), (HALF, WHOLE)),
        (FULL.clone(), {"tp": Only(0)}, (WHOLE, 0)),
    ],
    ids=["as laid out", "whole", "sharded", "elsewhere"],
)
def test_what_is_due_is_the_layouts(own: Tensor, says: Entry, noted: tuple[int, int]) -> None:
    found = held(own, says)
    assert found["parameters"] == noted and found["gradients"] == noted


def test_a_parameter_that_the_layout_does_not_name_is_due_as_it_says_itself() -> None:
    part = FULL[2:].clone()
    assert held(part, Replicate(), False, Shard(0))["parameters"] == (HALF, HALF)
    assert held(part, Replicate(), True, Shard(0))["parameters"] == (HALF, WHOLE)


def test_a_state_is_due_as_its_parameter_is_and_one_of_no_shape_as_it_is() -> None:
    state = {"mean": FULL.clone(), "steps": torch.zeros(())}
    assert held(FULL[2:].clone(), Shard(0), **state)["optimizer_state"] == (WHOLE + 4, HALF + 4)
    own = held(FULL[2:].clone(), Replicate(), False, Shard(0), **state)
    assert own["optimizer_state"] == (WHOLE + 4, HALF + 4)


def kept_of_state(full: Tensor, state: Tensor, rank: int) -> list[str | None]:
    """What a rank with its half of `w` is said to keep of a state."""
    given: dict[str, Any] = dict.fromkeys(field.name for field in fields(Work))
    given |= {"case": CASE, "params": {"w": Shard(0)}, "named": frozenset({"w"})}
    report = RankReport(rank)
    report.entries["w"] = Shard(0)
    Holding(Work(**given), {"w": full}, {}, report).state({"w.mean": state}, 0)
    details = [mismatch.detail for mismatch in report.mismatches]
    return [detail.what for detail in details if isinstance(detail, Misheld)]


def test_a_state_made_for_the_whole_is_one_and_padding_is_not() -> None:
    full = torch.randn(32, 4)
    whole = torch.zeros(32, 4)
    whole[16:] = full[16:]
    assert kept_of_state(full, whole[16:], 1) == ["optimizer's state"]
    columns = torch.zeros(4, 32)
    columns[:, :16] = full[:16].T
    assert kept_of_state(full, columns[:, :16].T, 0) == ["optimizer's state"]
    block = torch.zeros(128)
    block[:64] = full[16:].flatten()
    for rank in (0, 1):
        assert kept_of_state(full, block[:64].view(16, 4), rank) == []
    odd = torch.randn(33, 4)  # in three parts, and no multiple of 64
    first = torch.zeros(33, 4)
    first[:11] = odd[:11]
    assert kept_of_state(odd, first[:11], 0) == ["optimizer's state"]


def test_a_tied_parameter_is_due_once() -> None:
    noted = SimpleNamespace(bytes={}, entries={}, rank=0)
    work = SimpleNamespace(case=CASE, params={"a": Shard(0), "b": Shard(0)}, named={"a", "b"})
    module = nn.Module()
    module.a = module.b = nn.Parameter(FULL[:2].clone())
    holding: Any = Holding(work, {"a": FULL, "b": FULL}, {}, noted)  # type: ignore[arg-type]
    holding.parameters(module)
    assert noted.bytes["parameters"] == (HALF, HALF)


def besides(full: Tensor, **kept: Any) -> list[str | None]:
    """What a rank with the second half of `w` is said to keep in attributes, and in `buffer`."""
    given: dict[str, Any] = dict.fromkeys(field.name for field in fields(Work))
    given |= {"case": CASE, "params": {"w": Shard(0)}, "named": frozenset({"w"})}
    report, module = RankReport(1), nn.Module()
    report.entries["w"] = Shard(0)
    module.w = nn.Parameter(full.chunk(2)[1].clone())
    for name, tensor in kept.items():
        if name == "buffer":
            module.register_buffer(name, tensor)
        else:
            setattr(module, name, tensor)
    Holding(Work(**given), {"w": full}, {}, report).elsewhere(module)
    details = [mismatch.detail for mismatch in report.mismatches]
    return [detail.what for detail in details if isinstance(detail, Misheld)]


def test_a_whole_tensor_beside_the_part_is_one_in_whatever_dtype_and_storage() -> None:
    full = torch.randn(16, 8)
    flat = torch.cat([torch.zeros(4), full.flatten()])
    for whole in (full, full.bfloat16(), full.double(), flat[4:].view(16, 8)):
        assert besides(full, seen=whole) == ["attribute seen"]
        assert besides(full, buffer=whole) == ["buffer buffer"]
    assert besides(full, seen=full[8:].clone(), buffer=full[:8].clone()) == []


def test_what_takes_no_memory_or_tells_of_no_other_rank_is_not_one(tmp_path: Path) -> None:
    rows = torch.randn(1, 8).expand(16, 8)
    assert besides(rows.clone(), seen=rows) == []
    assert besides(torch.eye(16, 8), seen=torch.eye(16, 8)) == ["attribute seen"], "zeros below"
    assert besides(torch.eye(8).repeat(2, 1), buffer=torch.eye(8).repeat(2, 1)) == []
    full = torch.randn(16, 8)
    mapped = torch.from_file(str(tmp_path / "whole"), shared=True, size=128).view(16, 8)
    assert besides(full, seen=mapped.copy_(full)) == []


def test_it_is_found_in_what_the_module_keeps_in_other_things() -> None:
    full = torch.randn(16, 8)
    teacher = nn.Linear(8, 16)
    teacher.weight.data = full.clone()
    for seen in ({"layers": {"up": full}}, [{"up": full}], deque([full]), [teacher], ((full,),)):
        assert besides(full, seen=seen) == ["attribute seen"]
    deep: list[Any] = [full]
    deep.append(deep)
    assert besides(full, seen=deep) == ["attribute seen"], "itself among what it has"
    assert besides(full, seen=[list(range(100_000)), {"a": object()}, "text"]) == []


def test_a_dtype_that_leaves_no_numbers_tells_nothing() -> None:
    small = torch.randn(16, 8) * 1e-9
    assert besides(small, seen=torch.zeros(16, 8, dtype=torch.float16)) == []
    assert besides(small, seen=torch.zeros(16, 8, dtype=torch.float8_e4m3fn)) == []
    full = torch.randn(16, 8)
    assert besides(full, seen=full.to(torch.float8_e4m3fn)) == ["attribute seen"]
    packed = torch.zeros(16, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert besides(full, seen=packed) == []


class Odd(nn.Module):
    """A module that no walk through its own names would get out of, or into."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.other = other

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Any:  # type: ignore[override]
        raise NotImplementedError


class Endless(list[Any]):
    def __iter__(self) -> Any:
        raise NotImplementedError


class Gone:
    pass


def test_what_a_module_keeps_is_looked_at_whatever_it_is() -> None:
    full = torch.randn(16, 8)
    module = nn.Linear(8, 16)
    odd = Odd(module)
    module.register_module("parent", odd)
    assert besides(full, seen=[odd], also=Endless([full])) == ["attribute also"]
    gone = Gone()
    assert besides(full, seen=weakref.proxy(gone), also=full) == ["attribute also"]
    dead = weakref.proxy(Gone())
    assert besides(full, also=[dead, full]) == ["attribute also"]
    freed, whole = torch.zeros(1 << 20), full.clone()
    freed.untyped_storage().resize_(0)
    waited = [AsyncCollectiveTensor(freed), AsyncCollectiveTensor(whole)]
    assert besides(full, seen=waited) == ["attribute seen"]
    assert besides(torch.empty(0, dtype=torch.float64), seen=torch.empty(0)) == []


def test_what_leads_back_is_gone_through_once() -> None:
    root, many = nn.Module(), [nn.Linear(2, 2) for _ in range(300)]
    for number, layer in enumerate(many):
        layer.__dict__["root"], layer.__dict__["all"] = [root], many
        root.add_module(str(number), layer)
    assert len(list(attributes(root))) == 2 * 300
