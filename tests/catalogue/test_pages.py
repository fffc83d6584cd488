"""The pages about frameworks and what was found in them: their models take seconds to load."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests import documents
from tests.documents.following import followed

LONG = ("docs/adapters.md",)


@pytest.mark.parametrize(
    "page",
    [
        # a finding is a fact of one release; that it still shows is the properties' to say, as
        # what adapters do is that of their tests: half a minute
        pytest.param(page, marks=pytest.mark.sweep if page in LONG or "findings" in page else ())
        for page in documents.followed_in("catalogue")
    ],
)
def test_a_page_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert followed(documents.pages()[page], tmp_path, monkeypatch) == []


#: What a page imports, by the beginning of its name.
RELEASED = {
    "comparison.md": "spmd_types",
    "liger": "liger_kernel",
    "fla": "fla",
    "unsloth": "unsloth",
}


@pytest.mark.sweep  # of packages that the environment does not have
@pytest.mark.parametrize("page", documents.followed_in("released"))
def test_a_page_about_other_packages_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = RELEASED[Path(page).name.partition("-")[0]]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert followed(documents.pages()[page], tmp_path, monkeypatch) == []
