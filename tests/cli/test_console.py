"""Numbers and names as they are printed."""

from __future__ import annotations

import math

import pytest

from widemargin.cli.console import complain, number, printable, share, text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.00"),
        (-0.0, "0.00"),
        (1.5, "1.50"),
        (-0.12345, "-0.123"),
        (123.4, "123"),
        (-99.96, "-100"),
        (12345.0, "1.23e+04"),
        (1.2345e-7, "1.23e-07"),
        (math.inf, "inf"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_shares_are_in_percent() -> None:
    assert [share(value) for value in (0.0, 0.1234, 1.0, math.nan)] == ["0.0 %", "12.3 %", "100.0 %", "–"]


def test_control_characters_are_spelt_out_and_letters_kept() -> None:
    assert printable("é ∞\n\x1b[2J\r\x00\udc80") == "é ∞\\n\\x1b[2J\\r\\x00\\udc80"
    assert text("[red]x[/red]").plain == "[red]x[/red]"


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain("torch says:\n  " + "many words " * 30)
    assert capsys.readouterr().err == "Error: torch says: " + "many words " * 29 + "many words\n"
