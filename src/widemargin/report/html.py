"""HTML files from the templates: one file each, which loads nothing from any server."""

from __future__ import annotations

import base64
import hashlib
import os
from importlib import resources
from pathlib import Path

from widemargin import __version__
from widemargin._io.files import write_text
from widemargin._io.optional import import_optional
from widemargin.report.theme import FONT, PALETTE, css_colors


def render(name: str, *, scripts: tuple[str, ...] = (), **values: object) -> str:
    """The template `name` filled with `values`, as HTML. Only the given inline `scripts` may run in it."""
    jinja2 = import_optional("jinja2", "the report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(
        policy=_policy(scripts),
        light=css_colors("light"),
        dark=css_colors("dark"),
        font=FONT,
        icon=[color.replace("#", "%23") for color in PALETTE["light"]],
        style=template("page.css"),
        version=__version__,
        **values,
    )


def template(name: str) -> str:
    """The text of a file in templates/."""
    return resources.files("widemargin.report").joinpath("templates", name).read_text(encoding="utf-8")


def write(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` to `path`, completely or not at all."""
    return write_text(Path(path), text)


def _policy(scripts: tuple[str, ...]) -> str:
    """The Content-Security-Policy: nothing is fetched, and only these scripts run."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = "".join(f" 'sha256-{digest}'" for digest in hashes)
    images = "data: blob:" if scripts else "data:"
    return (
        f"default-src 'none'; {f'script-src{allowed}; ' if scripts else ''}style-src 'unsafe-inline'; "
        f"img-src {images}; base-uri 'none'; form-action 'none'"
    )
