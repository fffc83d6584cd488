"""`tpcheck calibrate`: mistakes are refused before ranks are started."""

from __future__ import annotations

import pytest

from tpcheck.cli.main import main


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--dims", "{}"], "together"),
        (["x.py::y", "--dims", "nonsense"], "not a JSON object"),
        (["--runs", "0"], "at least 1"),
        (["--dtype", "float8"], "is not one of"),
    ],
)
def test_mistakes_are_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["calibrate", "sensitivity", *given])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
