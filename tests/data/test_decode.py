from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from data.synthetic import arrays, encoded
from widemargin.data.decode import to_array


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_lossless_images_come_back_as_they_were(form: str) -> None:
    for image in arrays((3, 32, 32))["test"][0]:
        np.testing.assert_array_equal(to_array(encoded(image, form), 3, "it"), image)


def test_grey_images_have_one_channel() -> None:
    (image, *_) = arrays((1, 28, 28))["test"][0]
    np.testing.assert_array_equal(to_array(encoded(image), 1, "it"), image)
    assert to_array(encoded(image), 3, "it").shape == (3, 28, 28)


@pytest.mark.parametrize("shape", [(40, 80), (80, 40), (7, 9), (64, 64), (1, 50)])
def test_the_middle_is_cut_out(shape: tuple[int, int]) -> None:
    height, width = shape
    image = np.full((3, height, width), 200, np.uint8)
    cut = to_array(encoded(image), 3, "it", size=32)
    assert cut.shape == (3, 32, 32)
    assert int(cut.min()) == int(cut.max()) == 200


def test_the_cut_is_in_the_middle() -> None:
    image = np.zeros((3, 64, 128), np.uint8)
    image[:, :, 64:] = 255  # dark on the left, bright on the right
    cut = to_array(encoded(image), 3, "it", size=56)  # 56/0.875 = 64: no scaling
    np.testing.assert_array_equal(cut, image[:, 4:60, 36:92])


def broken_images() -> list[bytes]:
    buffer = io.BytesIO()
    Image.new("RGB", (50, 50)).save(buffer, "BMP")  # whole, but of a kind that no data set here has
    png = encoded(arrays((3, 32, 32))["test"][0][0])
    return [png[: len(png) // 2], b"", b"<html>", buffer.getvalue()]


@pytest.mark.parametrize("content", broken_images())
def test_what_is_no_whole_image_is_named(content: bytes) -> None:
    with pytest.raises(ValueError, match="row 3 of that is not a whole PNG, WebP or JPEG image"):
        to_array(content, 3, "row 3 of that")
