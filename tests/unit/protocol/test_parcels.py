"""Parcels between machines."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpcheck.protocol import parcels
from tpcheck.protocol.parcels import Broken, Inbox, Parcel, Wire, in_json, packed


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname()[:2])
        other, _ = listening.accept()
    found = Wire(one), Wire(other)
    yield found
    for end in found:
        end.close()


def test_they_come_as_they_were_sent(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    one.send(packed(Parcel.DATA, b"x" * (1 << 21)) + in_json(Parcel.HELLO, rank=3))
    one.send(packed(Parcel.PING))
    assert other.next(5.0) == (Parcel.DATA, b"x" * (1 << 21))
    assert other.next(5.0) == (Parcel.HELLO, b'{"rank": 3}')
    assert other.expect(Parcel.PING, 5.0) == b""


def test_bytes_one_after_the_other() -> None:
    inbox = Inbox()
    found = []
    for byte in packed(Parcel.LOG, b"ab") + packed(Parcel.BYE):
        inbox.feed(bytes([byte]))
        found += inbox.parcels()
    assert found == [(Parcel.LOG, b"ab"), (Parcel.BYE, b"")]


def test_something_else_is_told() -> None:
    inbox = Inbox()
    inbox.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(Broken, match="something else"):
        list(inbox.parcels())


def test_nothing_is_waited_for_no_longer_than_said(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    with pytest.raises(Broken):
        other.expect(Parcel.PONG, 0.05)
    one.close()
    with pytest.raises(Broken, match="closed"):
        other.next(5.0)


def test_files_and_folders(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "case1.checkpoint" / "deep").mkdir(parents=True)
    (here / "case1.safetensors").write_bytes(b"bundle")
    (here / "case1.checkpoint" / "deep" / "0").write_bytes(b"rank 0")
    (here / "case1.suspects").mkdir()
    paths = [here / "case1.safetensors", here / "case1.checkpoint"]
    parcel = parcels.of_files(paths, [here / "case1.suspects"])
    inbox = Inbox()
    inbox.feed(parcel)
    ((kind, body),) = inbox.parcels()
    assert kind is Parcel.FILES
    files, folders, watched = parcels.unpacked(body)
    assert watched == [str(here / "case1.suspects")]
    moved = {name.replace("/here/", "/there/"): data for name, data in files.items()}
    there.mkdir()
    parcels.write(moved, [name.replace("/here/", "/there/") for name in folders], there)
    assert (there / "case1.safetensors").read_bytes() == b"bundle"
    assert (there / "case1.checkpoint" / "deep" / "0").read_bytes() == b"rank 0"
    assert (there / "case1.suspects").is_dir()


def test_files_elsewhere_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    out, beside = tmp_path / "run" / ".." / "else", tmp_path / "run of another" / "x"
    for name in (tmp_path / "else", out, beside, Path("/etc/tpcheck")):
        with pytest.raises(Broken, match="not of this run"):
            parcels.write({str(name): b""}, [], tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


def test_what_a_candidate_has_put_in_a_files_place_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    kept = tmp_path / "suspects"
    kept.mkdir()
    (kept / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(kept / "pipe")
    (kept / "file").write_bytes(b"own")
    files, _, _ = parcels.unpacked(parcels.of_files([kept], [])[17:])
    assert files == {str(kept / "file"): b"own"}
