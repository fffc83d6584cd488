"""Keys are matched as `parallelize_module` matches them; what they miss is suggested."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from torch import nn

from tpcheck.plan.match import Match, Tree, alike, candidates, match, wrapper_on
from tpcheck.plan.unknown_style import fake_mesh, quiet


def block() -> nn.Module:
    attention = nn.ModuleDict({n: nn.Linear(4, 4) for n in ("q_proj", "k_proj", "o_proj")})
    return nn.ModuleDict({"self_attn": attention, "mlp": nn.ModuleDict({"up": nn.Linear(4, 4)})})


def model(layers: int = 12) -> nn.Module:
    inner = nn.ModuleDict({"layers": nn.ModuleList(block() for _ in range(layers))})
    return nn.ModuleDict({"model": inner, "head": nn.Linear(4, 4)})


def wrapped(name: str) -> nn.Module:
    """The model with a wrapper's level around its second layer."""
    out: Any = model(3)
    out["model"]["layers"][1] = nn.ModuleDict({name: out["model"]["layers"][1]})
    return out


KEYS = (
    "head",
    "model.layers.*.self_attn.q_proj",
    "model.layers.?.mlp.up",
    "model.layers.1*.self_attn.[qk]_proj",
    "*.layers.0.mlp.up",
    "model.layers.3.self_attn.*",
    "layers.*.mlp.up",
    "model.layers.*.self_attn.v_proj",
    "model.layers.40.mlp.up",
    "model.*.0.self_attn",
)


@pytest.mark.parametrize("key", KEYS)
def test_the_same_modules_as_parallelize_module(key: str) -> None:
    from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

    touched: list[nn.Module] = []

    class Note(ParallelStyle):
        def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
            touched.append(module)
            return module

    given = model()
    names = {id(module): name for name, module in given.named_modules()}
    with fake_mesh(2) as mesh, quiet(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallelize_module(given, mesh, {key: Note()})
    found = match(Tree(given), key, parameters=False)
    assert list(found.hits) == [names[id(module)] for module in touched]
    assert bool(caught) == bool(found.missing)


def test_of_how_many() -> None:
    given: Any = model(4)
    del given["model"]["layers"][2]["mlp"]["up"]
    found = match(Tree(given), "model.layers.*.mlp.up", parameters=False)
    assert (len(found.hits), found.expected) == (3, 4)
    assert found.missing == (("model.layers.2.mlp", "up"),)


def test_string_plans_may_name_parameters() -> None:
    tree = Tree(model(2))
    key = "model.layers.*.mlp.up.weight"
    assert match(tree, key, parameters=True).hits == tuple(
        f"model.layers.{i}.mlp.up.weight" for i in range(2)
    )
    assert match(tree, key, parameters=False).hits == ()


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("layers.*.mlp.up", "model.layers.*.mlp.up"),
        ("model.model.layers.*.mlp.up", "model.layers.*.mlp.up"),
        ("model.layers.*.mlp.upp", "model.layers.*.mlp.up"),
        ("model.layers.*.attn.q_proj", "model.layers.*.self_attn.q_proj"),
        ("model.layers.*.self_attn.qproj", "model.layers.*.self_attn.q_proj"),
        ("model.layers.77.mlp.up", "model.layers.*.mlp.up"),
        ("lm_head", "head"),
    ],
)
def test_the_likeliest_name_comes_first(key: str, first: str) -> None:
    tree = Tree(model(3))
    assert candidates(tree, match(tree, key, parameters=True))[0] == first


def test_fused_names_before_similar_ones() -> None:
    assert alike("k_proj", ["o_proj", "qkv_proj"])[0] == "qkv_proj"
    assert alike("up_proj", ["down_proj", "gate_up_proj"])[0] == "gate_up_proj"
    assert alike("up_proj", ["norm", "0", "1"]) == []


@pytest.mark.parametrize("name", ["_orig_mod", "_checkpoint_wrapped_module", "module"])
def test_wrappers_are_seen_and_can_be_left_out(name: str) -> None:
    given = wrapped(name)
    raw, plain = Tree(given), Tree(given, unwrapped=True)
    key = "model.layers.*.mlp.up"
    found = match(raw, key, parameters=False)
    assert found.missing == (("model.layers.1", "mlp.up"),)
    assert wrapper_on(raw, found) is not None
    assert f"model.layers.*.{name}.mlp.up" in candidates(raw, Match(key, (), found.missing))
    assert match(plain, key, parameters=False).hits == tuple(
        f"model.layers.{i}.mlp.up" for i in range(3)
    )
    assert list(plain.parameters) == list(Tree(model(3)).parameters)


def test_a_module_of_ones_own_called_module_is_no_wrapper() -> None:
    given = nn.ModuleDict({"module": nn.Linear(2, 2), "other": nn.Linear(2, 2)})
    assert list(Tree(given, unwrapped=True).parameters) == list(Tree(given).parameters)
