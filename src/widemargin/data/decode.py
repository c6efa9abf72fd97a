"""One encoded image to an array."""

from __future__ import annotations

import io

import numpy as np
from jaxtyping import UInt8

from widemargin._io.optional import import_optional

_FORMATS = ("PNG", "WEBP", "JPEG")  # not the other forty that Pillow would try


def to_array(content: bytes, channels: int, source: str, *, size: int | None = None) -> UInt8[np.ndarray, "c h w"]:
    """The image as bytes [channels, height, width]: grey for 1 channel, red, green and blue for 3.

    With `size`, the shorter side is scaled to size/0.875 and the middle size × size is cut out, the usual way to
    evaluate on ImageNet.
    """
    image_module = import_optional("PIL.Image", "reading images")
    try:
        with image_module.open(io.BytesIO(content), formats=_FORMATS) as opened:
            image = opened.convert("L" if channels == 1 else "RGB")
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{source} is not a whole PNG, WebP or JPEG image: {error}") from error
    if size is not None:
        scale = size / 0.875 / min(image.size)
        wide, high = (max(size, round(side * scale)) for side in image.size)
        left, top = (wide - size) // 2, (high - size) // 2
        image = image.resize((wide, high), image_module.Resampling.BILINEAR)
        image = image.crop((left, top, left + size, top + size))
    array = np.asarray(image)
    return array[np.newaxis] if channels == 1 else array.transpose(2, 0, 1)
