"""Pages and charts of results, from plain values (see `schema`), without torch.

from widemargin.report import figures, page
page.write("page.html", result)
figures.save(figures.margins(result, "input"), "margins.svg")
"""

from widemargin.report import figures, page, png, schema

__all__ = ["figures", "page", "png", "schema"]
