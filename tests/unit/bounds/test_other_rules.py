"""Other rules than ours, on one tensor each: what they see and what they can't."""

from __future__ import annotations

import torch

from tpcheck.bounds import other_rules


def test_rules_on_one_tensor() -> None:
    value = torch.linspace(1.0, 2.0, 7, dtype=torch.float64)
    own = value.to(torch.bfloat16)
    about = {"twice_own": other_rules.twice_own_error(own, value)}
    assert other_rules.alarms(own, value, own, **about) == set()
    slightly = (value * 1.02).to(torch.bfloat16)  # beyond 1.6 %, the default, and the roundings
    assert other_rules.alarms(slightly, value, own, **about) == {"assert_close", "twice own error"}
    grossly = (value * 1.2).to(torch.bfloat16)
    every = {"assert_close", "twice own error", "frobenius 8.3 %"}
    assert other_rules.alarms(grossly, value, own, **about) == every
    assert other_rules.alarms(None, value, own, **about) == every
    assert other_rules.alarms(own[:3], value, own, **about) == every
    assert other_rules.alarms(torch.full_like(own, torch.nan), value, own, **about) == every
    assert other_rules.alarms(own.float(), value, own, **about) == {"assert_close"}  # the dtype
    assert other_rules.alarms(own[:0], value[:0], own[:0], twice_own=0.0) == set()


def test_twice_own_error_is_of_the_full_tensor_and_its_roundings() -> None:
    value = torch.tensor([1.0, 1.0 + 2.0**-9], dtype=torch.float64)
    own = value.to(torch.bfloat16)
    rounding = float((own + 0.3 - 0.3 - own).abs().max())
    assert other_rules.twice_own_error(own, value) == 2 * 2.0**-9 + 2 * rounding
