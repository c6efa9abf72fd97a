from __future__ import annotations

import numpy as np
import pytest

from data.synthetic import arrays, cifar_contents
from widemargin.data import cifar_binary
from widemargin.data.files import File


def test_pack_and_parse_against_the_format_written_out() -> None:
    data = arrays((3, 32, 32))
    contents = cifar_contents(data)
    for split, names in cifar_binary.FILES.items():
        images, labels = data[split]
        assert cifar_binary.pack(images, labels, names) == {name: contents[name] for name in names}
        found = cifar_binary.parse(tuple(File(name, contents[name]) for name in names))
        np.testing.assert_array_equal(found[0], images)
        np.testing.assert_array_equal(found[1], labels)


@pytest.mark.parametrize("size", [0, 1, 3072, 3073 + 5])
def test_what_is_no_whole_number_of_records(size: int) -> None:
    whole = File("whole.bin", bytes(3073))
    with pytest.raises(ValueError, match=f"broken.bin has {size:,} bytes, expected a multiple of 3073"):
        cifar_binary.parse((whole, File("broken.bin", bytes(size))))
