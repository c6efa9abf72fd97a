from __future__ import annotations

import re
import sys

import pytest
import torch

from widemargin import models
from widemargin.models import inception


def test_without_torchvision_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    sentence = "inception-v3 needs torchvision, which is not installed: pip install 'widemargin[vision]'"
    with pytest.raises(ImportError, match=re.escape(sentence)):
        models.build("inception-v3")
    told = models.describe("inception-v3")
    assert (told.parameters, told.places, told.needs) == (None, (), sentence)


def test_bad_settings_come_before_the_missing_package() -> None:
    with pytest.raises(ValueError, match=r"^classes is 0,"):
        models.build("inception-v3", classes=0)


def test_with_torchvision() -> None:
    pytest.importorskip("torchvision")
    told = models.describe("inception-v3")
    assert told.parameters == 27_161_264
    assert told.places[0] == "input"
    assert told.places[-1] == "fc"
    with torch.device("meta"):
        network = inception.inception_v3(classes=7)
        assert network(torch.zeros(2, 3, 299, 299)).logits.shape == (2, 7)
        assert network.eval()(torch.zeros(2, 3, 299, 299)).shape == (2, 7)
