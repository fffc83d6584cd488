"""A signal while a case is saved: it is saved, and nothing else is left."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.search.test_corpus import ENTRY
from tpcheck.report import files
from tpcheck.search.corpus import Corpus


class Hit(Exception):
    """What a signal's handler raises."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", ["mkdir", "mkstemp", "fsync", "replace"])
def test_a_signal_while_saving_loses_nothing_and_leaves_nothing(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, at: str
) -> None:
    def hit(*_: object) -> None:
        raise Hit

    before = signal.signal(number, hit)
    owner = {"mkdir": Path, "mkstemp": tempfile}.get(at, os)
    whole = getattr(owner, at)

    def struck(*args: Any, **options: Any) -> Any:
        signal.raise_signal(number)
        return whole(*args, **options)

    monkeypatch.setattr(owner, at, struck)
    try:
        with pytest.raises(Hit):
            corpus.save(ENTRY)
        assert signal.getsignal(number) is hit
    finally:
        signal.signal(number, before)
    assert [p.name for p in corpus.folder.iterdir()] == ["7f3a91.json"]


def test_what_a_killed_run_left_is_removed_and_what_is_being_written_is_not(
    corpus: Corpus,
) -> None:
    corpus.save(ENTRY)
    (corpus.folder / "tmpabcdefgh.tmp").write_text("half")
    (corpus.folder / "mine.tmp").write_text("a user's own")
    handle, writing = files._temporary(corpus.folder)
    corpus.sweep()
    os.close(handle)
    names = {p.name for p in corpus.folder.iterdir()}
    assert names == {"7f3a91.json", "mine.tmp", Path(writing).name}
