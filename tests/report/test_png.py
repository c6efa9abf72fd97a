from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from widemargin.report import png


@pytest.mark.parametrize(("shape", "mode"), [((5, 7), "L"), ((1, 5, 7), "L"), ((3, 5, 7), "RGB"), ((1, 1), "L")])
def test_another_reader_reads_the_same_pixels(shape: tuple[int, ...], mode: str) -> None:
    image = np.random.default_rng(0).random(shape)
    read = Image.open(io.BytesIO(png.encode(image)))
    assert read.mode == mode
    expected = np.rint(image * 255).astype(np.uint8)
    expected = expected.transpose(1, 2, 0) if mode == "RGB" else expected.reshape(shape[-2:])
    np.testing.assert_array_equal(np.asarray(read), expected)


def test_nested_lists_are_images_too() -> None:
    assert png.encode([[0.0, 1.0]]) == png.encode(np.array([[0.0, 1.0]]))


def test_a_data_uri_holds_the_file() -> None:
    kind, content = png.data_uri([[0.5]]).split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content, validate=True) == png.encode([[0.5]])


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ([[0.0, 1.5]], "values from 0 to 1.5, expected numbers in"),
        ([[float("nan")]], "expected numbers in"),
        (np.zeros((2, 4, 4)), r"shape \[2, 4, 4\], expected"),
        (np.zeros((3, 0, 4)), r"shape \[3, 0, 4\], expected"),
        ([[0.0], [0.0, 1.0]], "not an array of numbers"),
        ([["a"]], "not an array of numbers"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        png.encode(image)
