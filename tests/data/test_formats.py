from __future__ import annotations

import numpy as np
import pytest

from data.synthetic import arrays, cifar_contents, idx_bytes, idx_contents
from widemargin.data import formats
from widemargin.data.files import File


@pytest.mark.parametrize("kind", ["idx", "cifar"])
def test_pack_and_parse_against_the_format_written_out(kind: str) -> None:
    data = arrays((1, 28, 28) if kind == "idx" else (3, 32, 32))
    contents = (idx_contents if kind == "idx" else cifar_contents)(data)
    parse, pack = (formats.parse_idx, formats.pack_idx) if kind == "idx" else (formats.parse_cifar, formats.pack_cifar)
    for split, names in (formats.IDX_FILES if kind == "idx" else formats.CIFAR_FILES).items():
        images, labels = data[split]
        assert pack(images, labels, names) == {name: contents[name] for name in names}
        found = parse(tuple(File(name, contents[name]) for name in names))
        np.testing.assert_array_equal(found[0], images)
        np.testing.assert_array_equal(found[1], labels)


IMAGES, LABELS = idx_bytes(np.zeros((3, 28, 28), np.uint8)), idx_bytes(np.zeros(3, np.uint8))


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [
        (IMAGES[:-1], LABELS, r"images .*2,351.* \[3, 28, 28\]"),
        (IMAGES + b"\0", LABELS, r"images .*2,353.* \[3, 28, 28\]"),
        (IMAGES[:10], LABELS, r"images .* 00 00 08 03"),
        (LABELS, LABELS, r"images .* 00 00 08 01"),
        (b"", LABELS, "images begins with nothing"),
        (IMAGES, b"<html>not found</html>", r"labels .* 3c 68 74 6d"),
        (IMAGES, idx_bytes(np.zeros(2, np.uint8)), r"images .*3 .*labels .*2 "),
        (idx_bytes(np.zeros((0, 28, 28), np.uint8)), LABELS, r"images .* 0 .*\[0, 28, 28\]"),
    ],
)
def test_what_is_no_whole_idx_file(images: bytes, labels: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        formats.parse_idx((File("images", images), File("labels", labels)))


@pytest.mark.parametrize("size", [0, 1, 3072, 3073 + 5])
def test_what_is_no_whole_number_of_records(size: int) -> None:
    whole = File("whole.bin", bytes(3073))
    with pytest.raises(ValueError, match=rf"broken\.bin .*\b{size:,} .*3073"):
        formats.parse_cifar((whole, File("broken.bin", bytes(size))))
