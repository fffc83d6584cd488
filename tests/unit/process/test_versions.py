"""Whether a module or a class was changed, told without reading what it holds."""

from __future__ import annotations

import sys
import types

import pytest

from tpcheck.process.patches import Namespace
from tpcheck.process.versions import version

KEPT = sys.implementation.name == "cpython" and sys.version_info < (3, 13)


class Owner:
    def method(self) -> None: ...


@pytest.mark.skipif(not KEPT, reason="this Python keeps no versions of dicts")
@pytest.mark.parametrize("owner", [types.ModuleType("owner"), Owner], ids=["module", "class"])
def test_each_change_has_a_version_and_reading_has_none(owner: object) -> None:
    owner.name = len  # type: ignore[attr-defined]
    first = version(owner)
    assert owner.name is len and version(owner) == first  # type: ignore[attr-defined]
    owner.name = max  # type: ignore[attr-defined]
    second = version(owner)
    del owner.name  # type: ignore[attr-defined]
    assert len({first, second, version(owner)}) == 3


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_replaced_is_seen_with_versions_and_without(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr("tpcheck.process.patches.version", lambda owner: None)
    own, space = Owner.method, Namespace(Owner)
    assert space.restore() == [] and space.untouched == (kept and KEPT)
    Owner.method = lambda self: None  # type: ignore[method-assign]
    (left,) = space.restore()
    assert left.name.endswith("Owner.method") and left.restored and Owner.method is own
    assert space.restore() == []
