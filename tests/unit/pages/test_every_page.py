"""The pages for readers, without ranks: nothing in them is a fragment, dead, or out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import documents
from tests.documents import blocks, commands, faults, following

PAGES = documents.pages()
each = pytest.mark.parametrize("page", PAGES)


def text(page: str) -> str:
    return PAGES[page].read_text()


@each
def test_every_block_is_of_a_language_that_is_checked_and_no_python_is_a_fragment(
    page: str,
) -> None:
    assert list(faults.bad_blocks(text(page))) == []


@each
def test_every_shell_line_is_one_that_the_command_line_takes(page: str) -> None:
    assert list(commands.bad_commands(text(page))) == []


@each
def test_every_link_leads_somewhere(page: str) -> None:
    assert list(faults.dead_links(PAGES[page], text(page))) == []


@each
def test_every_file_that_is_named_is_there(page: str) -> None:
    assert list(faults.bad_paths(text(page))) == []


@each
def test_no_sample_has_a_path_of_the_machine_it_was_taken_on(page: str) -> None:
    assert list(faults.machine_paths(text(page))) == []


@each
def test_no_page_says_what_plain_english_says_otherwise(page: str) -> None:
    assert list(faults.foreign(text(page))) == []


def test_every_page_with_something_to_run_is_followed_in_one_folder() -> None:
    assert {page for page in PAGES if blocks.runs(text(page))} == set(documents.FOLLOWED)


@pytest.mark.parametrize("page", documents.followed_in("unit"))
def test_a_page_without_ranks_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(following.follow(text(page), page, tmp_path, {"__name__": "page"})) == []
