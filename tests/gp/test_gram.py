from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import oracles_gp
from subprocesses import child_env
from widemargin import gp
from widemargin.gp import gram


@pytest.mark.parametrize("jitter", [0.0, 1e-3])
def test_the_factor_gives_the_gram_matrix_back(monkeypatch: pytest.MonkeyPatch, jitter: float) -> None:
    monkeypatch.setattr(gram, "PANEL", 7)  # panels that do not divide n
    x = oracles_gp.sphere(40, 30, seed=0)
    lower = gram.factor(x / x.norm(dim=1, keepdim=True), 3, jitter)
    assert torch.equal(lower, lower.tril())
    expected = gp.kernel(x, x, 3) + jitter * torch.eye(40, dtype=torch.float64)
    torch.testing.assert_close(lower @ lower.T, expected, atol=1e-12, rtol=0)


def test_duplicates_are_found_anywhere() -> None:
    x = oracles_gp.sphere(50, 20, seed=1)
    unit = x / x.norm(dim=1, keepdim=True)
    assert gram.duplicates(unit) == []
    unit[31], unit[4], unit[49] = unit[7], unit[7], unit[0]
    pairs = gram.duplicates(unit)
    assert (0, 49) in pairs
    assert len(pairs) == 3  # a triple is linked by two pairs
    assert {i for pair in pairs for i in pair} == {0, 4, 7, 31, 49}
    assert gram.duplicates(unit[:1]) == []


def test_what_is_singular_is_named() -> None:
    x = oracles_gp.sphere(30, 6, seed=2)
    unit = x / x.norm(dim=1, keepdim=True)
    same = unit.clone()
    same[21] = unit[3]
    with pytest.raises(ValueError, match=r"train_x .* 3 and 21"):
        gram.factor(same, 3, 0.0)
    near = unit.clone()
    near[21] = unit[3] + 1e-8 * unit[4]  # as of a sample that was scaled in float32: seen by the factorisation
    near[21] /= near[21].norm()
    with pytest.raises(ValueError, match=r"train_x .* 3 and 21"):
        gram.factor(near, 3, 0.0)
    two = same.clone()
    two[5] = unit[0]
    with pytest.raises(ValueError, match=r"train_x .* 0 and 5 .*2"):
        gram.factor(two, 3, 1e-14)
    gram.factor(two, 3, 1e-6)


def test_dependent_points_that_differ() -> None:
    unit = oracles_gp.sphere(7, 6, seed=3) / 6**0.5
    with pytest.raises(ValueError, match=r"train_x .*depth 1.* 6"):
        gram.factor(unit, 1, 0.0)
    gram.factor(unit[:6], 1, 0.0)
    flat = torch.cat([unit[:3], -unit[2:3]])  # x and −x
    with pytest.raises(ValueError, match=r"train_x .*index 3 .*depth 1"):
        gram.factor(flat, 1, 0.0)
    gram.factor(flat, 2, 0.0)


MEMORY = """
from pathlib import Path
import torch
import widemargin.gp as gp

def sphere(n, d):
    x = torch.randn(n, d, dtype=torch.float64)
    return x * (d**0.5 / x.norm(dim=1, keepdim=True))

def peak():
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

torch.manual_seed(0)
gp.posterior(sphere(600, 5), torch.ones(600), sphere(50, 5), 2, covariance=False)  # what libraries keep
train, test, y = sphere(2000, 5), sphere(50, 5), torch.ones(2000)
before = peak()
gp.posterior(train, y, test, 2, covariance=False, jitter=1e-6)
print((peak() - before) / (8 * 2000**2))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_one_matrix_of_memory() -> None:
    """Kernel, factorisation and solutions take one n × n matrix and a little, not two."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
        env=child_env(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
    )
    assert float(done.stdout) < 1.9
