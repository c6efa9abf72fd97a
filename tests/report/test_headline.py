from __future__ import annotations

from typing import Any

from widemargin.report.check import check
from widemargin.report.headline import headline


def told(arms: list[dict[str, Any]], **more: Any) -> list[str]:
    return headline(check({"title": "t", "arms": arms, **more}))


def arm(
    name: str, accuracy: float, margins: list[float], attacked: float = 0.5, samples: int = 10_000
) -> dict[str, Any]:
    return {
        "name": name,
        "accuracy": accuracy,
        "samples": samples,
        "margins": {"input": margins},
        "curve": [{"epsilon": 0.1, "accuracy": attacked}],
    }


FGSM = {"attack": {"name": "FGSM", "shown": [0.05, 0.1]}}


def test_the_best_arm_is_compared_with_the_first() -> None:
    arms = [arm("plain", 0.9, [1.0, 1.0], 0.2), arm("wide", 0.95, [2.0, 3.0], 0.6), arm("other", 0.8, [1.5, 1.5], 0.3)]
    assert told(arms, **FGSM) == [
        "Wide keeps its samples 2.5 times as far from the decision boundary as plain: 2.50 against 1.00 on average.",
        "It is also right most often, 95.0 % against 90.0 % for plain.",
        "Under FGSM at ε = 0.1, it is still right on 60.0 %, plain on 20.0 %.",
    ]


def test_the_first_may_be_the_best() -> None:
    arms = [arm("plain", 0.95, [2.0, 3.0], 0.6), arm("wide", 0.8, [1.0, 1.0], 0.2)]
    assert told(arms, **FGSM) == [
        "No network keeps its samples further from the decision boundary than plain: 2.50 on average, the next 1.00.",
        "It is also right most often, 95.0 %.",
        "Under FGSM at ε = 0.1, no network is right more often than plain, 60.0 %.",
    ]


def test_another_subject_is_named() -> None:
    arms = [arm("plain", 0.9, [1.0, 1.0]), arm("wide", 0.8, [2.0, 2.0]), arm("sharp", 0.95, [1.5, 1.5])]
    assert told(arms)[1] == "Sharp is right most often, 95.0 % against 90.0 % for plain."


def test_a_difference_within_the_noise_is_none() -> None:
    close = [arm("plain", 0.90, [1.0, 1.0], samples=100), arm("wide", 0.92, [1.02, 1.02], samples=100)]
    assert told(close) == [
        "No network keeps its samples clearly further from the decision boundary than plain (1.00).",
        "All are right about equally often, 90.0 % to 92.0 %.",
    ]
    many = [arm("plain", 0.90, [1.0, 1.0]), arm("wide", 0.92, [1.02, 1.02])]
    assert told(many)[1] == "It is also right most often, 92.0 % against 90.0 % for plain."


def test_a_first_arm_on_the_wrong_side() -> None:
    arms = [arm("plain", 0.1, [-1.0, -1.0]), arm("wide", 0.9, [1.0, 1.0])]
    assert told(arms)[0].endswith("plain has them at −1.00, on the wrong side.")


def test_one_network() -> None:
    assert told([arm("mine", 0.875, [0.0, 1.0, 2.0, 3.0, 4.0], samples=5)], norm="l_2") == [
        "87.5 % of 5 samples are classified correctly; the mean l₂ distance to the decision boundary at the input is "
        "2.00; one sample in twenty lies below 0.200."
    ]


def test_nothing_measured_nothing_said() -> None:
    assert told([{"name": "a"}]) == []
    assert told([{"name": "a"}, {"name": "b"}]) == []
    assert told([{"name": "a", "margins": {"input": [None]}}, {"name": "b", "margins": {"input": [None]}}]) == []


def seeded(name: str, distances: list[float], attacked: list[float]) -> dict[str, Any]:
    curves = [[{"epsilon": 0.1, "accuracy": a}] for a in attacked]
    seeds = [
        {"seed": k, "accuracy": 0.9 + 0.01 * k, "margin": d, "curve": curve}
        for k, (d, curve) in enumerate(zip(distances, curves, strict=True))
    ]
    return {**arm(name, 0.91, distances, attacked[0]), "seeds": seeds}


def test_seeds_are_told_with_their_spread() -> None:
    arms = [
        seeded("plain", [0.9, 1.0, 1.1], [0.2, 0.3, 0.4]),
        seeded("other", [5.0, 5.0, 5.0], [0.9, 0.9, 0.9]),
        seeded("wide", [1.8, 2.0, 2.2], [0.6, 0.6, 0.6]),
    ]
    assert told(arms, subject="wide", **FGSM) == [
        "Wide keeps its samples 2.0 times as far from the decision boundary as plain: 2.00 ± 0.20 against 1.00 ± 0.10 "
        "on average.",
        "It is right on 91.0 ± 1.0 %, plain on 91.0 ± 1.0 %.",
        "Under FGSM at ε = 0.1, it is right on 60.0 ± 0.0 %, plain on 30.0 ± 10.0 %.",
    ]


def test_a_difference_within_the_spread_is_no_claim() -> None:
    arms = [seeded("plain", [0.8, 1.0, 1.2], [0.2] * 3), seeded("wide", [1.1, 1.3, 1.5], [0.6] * 3)]
    assert "not clearly further" in told(arms, subject="wide", **FGSM)[0]
