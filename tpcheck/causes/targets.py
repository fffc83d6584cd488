"""Causes that show in which column of sharded logits is taken for a token's target."""

from __future__ import annotations

from dataclasses import dataclass

from tpcheck.causes.where import Subject


@dataclass(frozen=True)
class LossOfOtherTargets:
    """What a rank has is the reference's loss of other ids: `given` → `taken` of one token."""

    subject: Subject
    rank: int
    ids: str
    given: int
    taken: int


@dataclass(frozen=True)
class LogitsOfForeignTargets:
    """The loss is less by a multiple of what ranks that do not have the target's column have as
    logits, and is right where these are 0."""

    subject: Subject
    logits: str
    ids: str


@dataclass(frozen=True)
class TargetsColumn:
    """In each of `rows` rows the gradient lacks the target's own term where it belongs, or has it
    in another column of `logits`; nothing else is wrong."""

    subject: Subject
    rows: int
    lacking: int
    added: int


OfTargets = LossOfOtherTargets | LogitsOfForeignTargets | TargetsColumn
