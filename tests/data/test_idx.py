from __future__ import annotations

import numpy as np
import pytest

from data.synthetic import arrays, idx_bytes, idx_contents
from widemargin.data import idx
from widemargin.data.files import File


def test_pack_and_parse_against_the_format_written_out() -> None:
    data = arrays((1, 28, 28))
    contents = idx_contents(data)
    for split, names in idx.FILES.items():
        images, labels = data[split]
        assert idx.pack(images, labels, names) == {name: contents[name] for name in names}
        found = idx.parse(tuple(File(name, contents[name]) for name in names))
        np.testing.assert_array_equal(found[0], images)
        np.testing.assert_array_equal(found[1], labels)


IMAGES, LABELS = idx_bytes(np.zeros((3, 28, 28), np.uint8)), idx_bytes(np.zeros(3, np.uint8))


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [
        (IMAGES[:-1], LABELS, r"images holds 2,351 bytes of data, but its header says \[3, 28, 28\]"),
        (IMAGES + b"\0", LABELS, r"images holds 2,353 bytes of data, but its header says \[3, 28, 28\]"),
        (IMAGES[:10], LABELS, "images begins with 00 00 08 03, expected the header of an idx file"),
        (LABELS, LABELS, "images begins with 00 00 08 01"),
        (b"", LABELS, "images begins with nothing"),
        (IMAGES, b"<html>not found</html>", "labels begins with 3c 68 74 6d"),
        (IMAGES, idx_bytes(np.zeros(2, np.uint8)), "images holds 3 images, but labels holds 2 labels"),
        (idx_bytes(np.zeros((0, 28, 28), np.uint8)), LABELS, r"images holds 0 bytes of data.*\[0, 28, 28\]"),
    ],
)
def test_what_is_no_whole_idx_file(images: bytes, labels: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        idx.parse((File("images", images), File("labels", labels)))
