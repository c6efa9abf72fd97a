"""`widemargin models`: the networks of the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from widemargin.cli.console import out, table, text
from widemargin.cli.errors import about
from widemargin.cli.networks import parse_settings
from widemargin.cli.options import option

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from widemargin.models import Description


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this network, with its settings and all its places.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        option("Show NAME with this setting, such as size=8; can be repeated.", "KEY=VALUE", flag="--set"),
    ] = None,
) -> None:
    """List the networks of the papers, or show one.

    A place is where a margin can be measured: the input of the network, or the
    output of one of its modules, by the module's name.

    [bold]Examples[/bold]

      widemargin models
      widemargin models wrn-28-10 --set depth=16 --set widen=4
    """
    from widemargin.models import describe, names

    settings = parse_settings(set_ or [])
    if name is not None:
        with about("NAME"):
            one = describe(name, **settings)
        out().print(_one(one))
        return
    if settings:
        raise ValueError("--set needs the NAME of a network")
    out().print(_all([describe(known) for known in names()]))
    out().print(text("widemargin models NAME shows the settings and all places of one."), soft_wrap=True)


def _all(found: list[Description]) -> Table:
    columns = ("name", "source", "parameters", "places")
    made = table("The networks", *columns, right=["parameters"], no_wrap=["name", "parameters"])
    for one in found:
        made.add_row(text(one.name), text(one.source), _parameters(one), _outer_places(one), end_section=True)
    return made


def _one(one: Description) -> Table:
    made = table(one.name, "", "")
    made.add_row("source", text(one.source))
    made.add_row("input", text(" × ".join(map(str, one.input_shape))))
    made.add_row("parameters", _parameters(one), end_section=True)
    for index, (key, value) in enumerate(one.settings.items()):
        made.add_row("" if index else "--set", text(f"{key}={value!r}"))
    made.add_section()
    made.add_row("--at", text(" ".join(one.places) or one.needs))
    return made


def _parameters(one: Description) -> str:
    return "–" if one.parameters is None else f"{one.parameters:,}"


def _outer_places(one: Description) -> Text:
    """The names without a dot, and the number of places inside them."""
    outer = [place for place in one.places if "." not in place]
    inside = len(one.places) - len(outer)
    return text((" ".join(outer) or one.needs) + (f" and {inside} inside these" if inside else ""))
