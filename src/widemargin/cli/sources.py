"""The data set of a command line: a name, a file, a folder of images by class, or `module:function`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widemargin.cli.errors import about
from widemargin.cli.networks import imported
from widemargin.cli.options import SESSION, DataSplit

if TYPE_CHECKING:
    from widemargin.data import Data
    from widemargin.report.schema import Json


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """The options that name the data of a command."""

    data: str
    test: str | None = None
    label: str | None = None
    split: DataSplit = "test"
    seed: int = 0
    root: Path | None = None

    @property
    def is_own(self) -> bool:
        """Whether the data are the user's own files or function, and not a data set by name."""
        from widemargin.data import names
        from widemargin.data.own_files import is_own

        return self.data not in names() and (self._is_function or is_own(self.data))

    @property
    def _is_function(self) -> bool:
        return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", self.data) is not None

    def load(self, option: str = "--data") -> Data[Any]:
        """The data set; raises an error about `option`, or another one that is wrong."""
        from widemargin.data import load, load_files

        session = SESSION.get()
        if not self.is_own:
            if self.test is not None or self.label is not None:
                wrong = "--test" if self.test is not None else "--label"
                raise ValueError(f"{wrong} is for files, but --data is {self.data!r}, a data set by name")
            with about(option):
                return load(self.data, root=self.root or session.data_root, verify=session.verify)
        with about(option):
            if self._is_function and self.label is not None:
                raise ValueError(f"--label is {self.label!r}, a column of a table, but {self.data!r} is a function")
            if self._is_function:
                return self._called()
            return load_files(self.data, test=self.test, label=self.label, seed=self.seed)

    def part(self, data: Data[Any]) -> Any:
        """The samples that `split` selects."""
        if self.split != "all":
            return data.train if self.split == "train" else data.test
        from widemargin.data import Samples
        from widemargin.data.own_files import whole

        if not isinstance(data.train, Samples):
            raise ValueError(
                f"--split is 'all', but --data is {self.data!r}, which is streamed: expected test or train"
            )
        return whole(data)

    def _called(self) -> Data[Any]:
        """The data that a function returns: a `Data`, a pair of training and test data, or all of it."""
        from widemargin.data import Data, Samples, read
        from widemargin.data.own_files import class_names, split, with_same_classes

        made = imported(self.data, "--data", "data")()
        if isinstance(made, Data):
            return made
        if isinstance(made, tuple | list) and len(made) == 2 and not _are_arrays(made):
            train, test = read(made[0]), read(made[1])
            if train.classes and not test.classes:  # indices into the names of the training part
                test = replace(test, classes=train.classes)
            train, test = with_same_classes(train, test)
        else:
            train, test = split(read(made), 0.2, self.seed)
        assert isinstance(train, Samples)
        return Data(self.data, train, test, class_names(train, test), None)


def settings_of(data: Data[Any]) -> dict[str, Json]:
    """Sizes, channels and classes of a data set, by the names that settings of networks have."""
    x, y = data.train[0]
    classes = 1 if y.is_floating_point() else len(data.classes)
    found: dict[str, Json] = {"inputs": x.numel(), "classes": classes, "outputs": classes}
    if x.ndim == 3:
        found["in_channels"] = x.shape[0]
        if x.shape[1] == x.shape[2]:
            found["size"] = x.shape[1]
    return found


def _are_arrays(pair: Sequence[object]) -> bool:
    """Whether a pair is (x, y), and not two data sets."""
    from torch.utils.data import DataLoader, Dataset

    return not any(isinstance(part, Dataset | DataLoader | tuple) for part in pair)
