"""Which check is next: the one of which most is expected, and none is left out for good."""

from __future__ import annotations

import random
from collections import Counter

from tpcheck.fuzz.picking import Arm, expected, pick


def test_what_showed_more_in_the_same_time_is_expected_to_show_more() -> None:
    rich, poor = Arm(), Arm()
    rich.add(8, 2.0)
    poor.add(0, 2.0)
    assert expected([rich]) > expected([Arm()]) > expected([poor])
    assert expected([rich]) > expected([rich, poor]) > expected([poor])


def test_what_was_new_long_ago_counts_for_little() -> None:
    once, now = Arm(), Arm()
    once.add(10, 2.0)
    for _ in range(30):
        once.add(0, 2.0)
        now.add(0, 2.0)
    now.add(2, 2.0)
    assert expected([now]) > expected([once])


def test_a_name_is_picked_as_often_as_its_weight_says() -> None:
    often = Counter(pick({"a": 3.0, "b": 1.0, "c": 0.01}, random.Random(n)) for n in range(4000))
    assert 2.5 < often["a"] / often["b"] < 3.6
    assert often["c"] > 0
