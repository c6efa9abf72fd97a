"""The papers' networks: functions that return an `nn.Module`, and the same by name.

One file per paper (`elsayed`, `odn`, `sokolic`, `farhang`), two more architectures (`resnet`, `vit`), and the pictures'
small networks (`toy`). Each function takes its widths and depths, the paper's by default.
"""

from __future__ import annotations

from widemargin.models.elsayed import inception_v3, mnist_cnn, wide_resnet
from widemargin.models.farhang import ScaledReLU, farhang_cnn, farhang_mlp
from widemargin.models.odn import alexnet, odn_cnn
from widemargin.models.registry import Description, build, describe, names
from widemargin.models.resnet import resnet
from widemargin.models.sokolic import sokolic_cnn, sokolic_mlp
from widemargin.models.toy import elsayed_toy, toy_mlp
from widemargin.models.vit import vit

__all__ = [
    "Description",
    "ScaledReLU",
    "alexnet",
    "build",
    "describe",
    "elsayed_toy",
    "farhang_cnn",
    "farhang_mlp",
    "inception_v3",
    "mnist_cnn",
    "names",
    "odn_cnn",
    "resnet",
    "sokolic_cnn",
    "sokolic_mlp",
    "toy_mlp",
    "vit",
    "wide_resnet",
]
