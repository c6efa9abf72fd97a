"""What is SHOWN: a page and charts of a result. Reads plain values (see `schema`), and never imports torch.

from widemargin.report import figures, page
page.write("page.html", result)
figures.save(figures.margins(result, "input"), "margins.svg")
"""

from widemargin.report import figures, page, png, schema

__all__ = ["figures", "page", "png", "schema"]
