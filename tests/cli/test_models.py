"""`widemargin models`."""

from __future__ import annotations

import pytest

from cli.conftest import Run
from widemargin import models


def words(out: str) -> set[str]:
    return set(out.split())


def test_all_networks_with_their_source_parameters_and_outer_places(run: Run) -> None:
    answer = run("models")
    assert answer.code == 0, answer.err
    for name in models.names():
        one = models.describe(name)
        assert f" {name} " in answer.out
        assert one.source.split()[0] in words(answer.out)
        if one.parameters is not None:
            assert f"{one.parameters:,}" in words(answer.out)
        assert {place for place in one.places if "." not in place} <= words(answer.out)
    inside = sum("." in place for place in models.describe("wrn-28-10").places)
    assert f"{inside} inside these" in " ".join(answer.out.split())


def test_the_list_fits_into_80_columns_whole(run: Run) -> None:
    answer = run("models")
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "…" not in answer.out


def test_one_network_with_its_settings_and_all_places(run: Run) -> None:
    answer = run("models", "wrn-28-10", "--set", "depth=10", "--set", "widen=1", "--set", "norm=group")
    assert answer.code == 0, answer.err
    one = models.describe("wrn-28-10", depth=10, widen=1, norm="group")
    assert set(one.places) <= words(answer.out)
    assert {f"{one.parameters:,}", "depth=10", "norm='group'"} <= words(answer.out)
    assert "3 × 32 × 32" in answer.out


def test_a_network_that_needs_an_extra_says_so(run: Run) -> None:
    one = models.describe("inception-v3")
    answer = run("models", "inception-v3")
    assert answer.code == 0
    if one.needs:
        assert one.needs in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("wrn-28",), "NAME: name is 'wrn-28'"),
        (("[bold]x",), "NAME: name is '[bold]x'"),
        (("toy-mlp", "--set", "width=3"), "NAME: 'width'"),
        (("toy-mlp", "--set", "width"), "--set is 'width'"),
        (("--set", "width=3"), "--set needs the NAME"),
    ],
)
def test_what_a_user_gets_wrong_is_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    answer = run("models", *arguments)
    assert (answer.code, answer.out, answer.exception) == (2, "", None)
    assert answer.err.startswith(f"Error: {said}")
    assert len(answer.err.splitlines()) == 1
