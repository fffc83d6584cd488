"""Whether a module or a class was changed, told without reading what it holds."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from tpcheck.process import patches, versions
from tpcheck.process.patches import Namespace, Namespaces, namespaces
from tpcheck.process.versions import Versions

KEPT = sys.implementation.name == "cpython" and sys.version_info < (3, 13)


class Owner:
    def method(self) -> None: ...


class Other:
    def method(self) -> None: ...


@pytest.mark.skipif(not KEPT, reason="this Python keeps no versions of dicts")
@pytest.mark.parametrize("owner", [types.ModuleType("owner"), Owner], ids=["module", "class"])
def test_each_change_is_seen_and_reading_is_none(owner: object) -> None:
    owner.name = len  # type: ignore[attr-defined]
    seen = Versions([Other, owner])
    assert owner.name is len and list(seen.changed) == []  # type: ignore[attr-defined]
    owner.name = max  # type: ignore[attr-defined]
    assert list(seen.changed) == [1]
    later = seen.anew()
    assert list(seen.changed) == [1] and list(later.changed) == []
    del owner.name  # type: ignore[attr-defined]
    assert list(later.changed) == [1]
    later.see()
    assert list(later.changed) == []


@pytest.fixture(params=[True, False], ids=["versions", "no versions"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether Python keeps versions of dicts."""
    if not request.param:
        monkeypatch.setattr(versions, "_KNOWN", False)
    return bool(request.param) and KEPT


def of(*owners: type) -> Namespaces:
    return Namespaces(patches._loaded(), [Namespace(one) for one in owners], {}, Versions(owners))


def test_what_is_replaced_is_seen_with_versions_and_without(kept: bool) -> None:
    own, spaces = Owner.method, of(Other, Owner)
    assert spaces.restore() == []
    Owner.method = lambda self: None  # type: ignore[method-assign]
    (left,) = spaces.restore()
    assert left.name.endswith("Owner.method") and left.restored and Owner.method is own
    assert spaces.restore() == []


def test_what_is_held_anew_is_held_as_it_is_then_and_before_as_it_was(kept: bool) -> None:
    own, spaces = Owner.method, of(Other, Owner)
    Owner.method = new = lambda self: None  # type: ignore[method-assign]
    later = spaces.anew()
    assert later is not spaces and (later[0] is spaces[0]) == kept and later[1] is not spaces[1]
    assert later.restore() == [] and Owner.method is new
    assert len(spaces.restore()) == 1 and Owner.method is own
    assert len(later.restore()) == 1 and Owner.method is new
    Owner.method = own  # type: ignore[method-assign]
    if kept:
        assert (again := of(Owner)).anew() is again, "nothing is read again"


def test_a_class_that_appears_among_torchs_layers_is_held_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = namespaces()
    monkeypatch.setattr(torch.nn, "Owner", Owner, raising=False)
    own = Owner.method
    after = namespaces()
    Owner.method = lambda self: None  # type: ignore[method-assign]
    assert before.restore() == [] and len(after.restore()) == 1 and Owner.method is own
