"""Image sets from the Hugging Face hub, through its `datasets` library (the extra `hub`)."""

from __future__ import annotations

from typing import Any

from widemargin._io.optional import import_optional
from widemargin.data.rows import image_column


def hub_rows(repository: str, split: str, *, streaming: bool) -> Any:
    """The split's rows, images still encoded: `{"image": {"bytes": …, "path": …}, "label": …}`.

    Downloaded once into the cache of `datasets`, or with `streaming` fetched as they are read. A download that breaks
    off leaves that cache as it was: the library writes to a temporary name first.
    """
    datasets = import_optional("datasets", f"downloading {repository}")
    try:
        rows = datasets.load_dataset(repository, split=split, streaming=streaming)
    except OSError as error:
        raise OSError(f"{repository} could not be downloaded from the Hugging Face hub: {error}") from error
    column = image_column(tuple(rows.features), repository)
    return rows.cast_column(column, datasets.Image(decode=False))
