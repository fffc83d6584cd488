"""What the campaign does, in order: drawn from its seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.catalogue.torture.fault import KINDS, Effect, Kind, Place, Trigger
from tests.catalogue.torture.known import RIGHT, WITHIN, WRONG

#: Faults of one kind that hangs, at most: each takes the time limit, several times.
HANGS = 1
#: How a round's checks are run: one after the other, in one list in drawn order, or the fault in
#: the first case of a check whose second case is a follow-up's.
MODES = ("apart", "apart", "together")


@dataclass(frozen=True)
class Round:
    """A fault and what follows it.

    Args:
        variant: index in the kind's variants.
        whole: whether every rank has the fault.
        within: the class of the second case, where the check has two.
        followers: names of the checks that follow.
        order: of the fault and its followers, where they run as one list; 0 is the fault.
    """

    engine: str
    number: int
    kind: str
    variant: int
    place: Place
    whole: bool
    mode: str
    within: str
    followers: tuple[str, ...]
    order: tuple[int, ...]

    @property
    def label(self) -> str:
        """What it is, in one line: of a fault of another plan it differs."""
        parts = [self.kind, str(self.variant), self.place, "all" if self.whole else "one"]
        return " ".join([*parts, self.mode, self.within, *self.followers]).replace("  ", " ")

    @property
    def trigger(self) -> Trigger:
        kind = KINDS[self.kind]
        return Trigger(kind.act, kind.variants[self.variant], self.place, self.whole)


def rounds(engine: str, count: int, seed: int, only: str | None = None) -> list[Round]:
    """The campaign on one engine: every kind has its turn, then each again."""
    chance = random.Random(f"{seed} {engine}")
    kinds = [
        kind for kind in KINDS.values() if engine in kind.engines and only in (None, kind.name)
    ]
    waiting = {kind.name: _faults(kind, engine, chance) for kind in kinds}
    found: list[Round] = []
    while waiting and len(found) < count:
        turn = list(waiting)
        chance.shuffle(turn)
        for name in turn:
            if not waiting[name]:
                del waiting[name]
            elif len(found) < count:
                kind = KINDS[name]
                variant, place = waiting[name].pop()
                found.append(_round(engine, len(found), kind, variant, place, chance))
    return found


def _faults(kind: Kind, engine: str, chance: random.Random) -> list[tuple[int, Place]]:
    places = [p for p in kind.places if engine != "threads" or p is not Place.HANDLER]
    every = [(variant, place) for variant in range(len(kind.variants)) for place in places]
    chance.shuffle(every)
    return every[:HANGS] if kind.effect is Effect.HANGS else every


def _round(
    engine: str, number: int, kind: Kind, variant: int, place: Place, chance: random.Random
) -> Round:
    right, wrong = list(RIGHT), list(WRONG)
    followers = [chance.choice(right), *chance.sample(wrong, chance.randint(1, 2))]
    followers += [chance.choice(right)] if chance.random() < 0.3 else []
    chance.shuffle(followers)
    order = list(range(len(followers) + 1))
    chance.shuffle(order)
    mode = chance.choice(MODES)
    # half of what leaves state behind does so within a check, too
    inside = kind.effect is Effect.LEAVES and chance.random() < 0.5
    within = chance.choice(["RowLinear", "Unwritten", *WITHIN]) if inside else ""
    imported = place is Place.IMPORT  # a module, which has one case's candidate
    return Round(
        engine=engine,
        number=number,
        kind=kind.name,
        variant=variant,
        place=place,
        whole=kind.everywhere or (kind.family != "collectives" and chance.random() < 0.4),
        mode="apart" if imported else mode,
        within="" if imported else within,
        followers=tuple(followers),
        order=tuple(order),
    )


def kinds_of(found: Sequence[Round]) -> Iterator[str]:
    """The kinds of a campaign, each once."""
    yield from dict.fromkeys(one.kind for one in found)
