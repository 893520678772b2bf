"""The looser bounds: their formulas, their order, and the mistakes that peers made with them."""

import math
import random

import pytest
from exact_tails import bernoulli_kl, log_eta
from mpmath import mpf

from pacbayes.bounds import (
    ACCURACY_BOUNDS,
    CATONI_GRID,
    catoni_risk_upper,
    certified_accuracy,
    gaussian_kl,
    hoeffding_risk_upper,
    kl_risk_lower,
    kl_risk_upper,
    log_failure_probability,
    maurer_seeger_risk_upper,
    pac_bayes_kl_risk_upper,
)


def cases(seed: int, count: int) -> list[tuple[int, int, float, float]]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        n = int(10 ** rng.uniform(0.5, 5))
        found.append((rng.randrange(n), n, rng.choice([0.0, 10 ** rng.uniform(0, 3)]), rng.choice([0.05, 0.3])))
    return found


def test_exact_inversion_is_the_tightest() -> None:
    for losses, n, bits, delta in cases(0, 150):
        got = {name: certified_accuracy(losses, n, bits=bits, delta=delta, bound=name) for name in ACCURACY_BOUNDS}
        # Without losses Chernoff's bound is the exact one; the two computations then differ in the last digit.
        assert max(got.values()) <= got["binomial"] + 1e-15
        assert got["maurer_seeger"] <= got["kl"] <= got["binomial"] + 1e-15
        assert got["betting"] <= got["binomial"] + 1e-14
        assert got["catoni"] <= got["kl"] + 1e-15
        assert got["hoeffding"] <= got["kl"] + 1e-15


def test_kl_is_the_edge() -> None:
    for losses, n, bits, delta in cases(1, 60):
        upper = kl_risk_upper(losses, n, log_eta=log_failure_probability(bits, delta))
        edge = -log_eta(bits, delta)
        assert upper == 1.0 or n * bernoulli_kl(losses / n, upper) >= edge - mpf(10) ** -9 * n * upper
        if upper - 1e-10 > losses / n:
            assert n * bernoulli_kl(losses / n, upper - 1e-10) < edge


def test_kl_takes_sums_of_fractional_losses() -> None:
    eta = log_failure_probability(10.0, 0.05)
    between = kl_risk_upper(200.5, 1000, log_eta=eta)
    assert kl_risk_upper(200, 1000, log_eta=eta) < between < kl_risk_upper(201, 1000, log_eta=eta)
    assert kl_risk_upper(1000, 1000, log_eta=eta) == 1.0
    assert kl_risk_lower(200.5, 1000, log_eta=eta) == pytest.approx(1 - kl_risk_upper(799.5, 1000, log_eta=eta))


def test_kl_lower_is_below_the_rate() -> None:
    assert 0.19 < kl_risk_lower(300, 1000, log_eta=-20.0) < 0.3 < kl_risk_upper(300, 1000, log_eta=-20.0) < 0.41
    assert kl_risk_lower(0, 10, log_eta=-1.0) == 0.0


def test_reference_value() -> None:
    assert 0.5406 <= certified_accuracy(200, 1000, bits=208, delta=0.05, bound="kl") < 0.541


@pytest.mark.parametrize(
    ("n", "accuracy", "bits", "hoeffding", "maurer_seeger"),
    [
        (500, 0.8, 50, 60.6, 61.1),
        (2000, 0.95, 200, 76.2, 82.3),
        (7500, 0.8, 200, 70.3, 71.4),
        (20000, 0.5, 1000, 36.8, 37.0),
    ],
)
def test_table_of_looser_bounds(n: int, accuracy: float, bits: int, hoeffding: float, maurer_seeger: float) -> None:
    losses = round(n * (1 - accuracy))
    for name, expected in (("hoeffding", hoeffding), ("maurer_seeger", maurer_seeger)):
        got = certified_accuracy(losses, n, bits=bits, delta=0.05, bound=name)
        assert 100 * got == pytest.approx(expected, abs=0.06)


def test_formulas_by_hand() -> None:
    eta = math.log(0.05)
    assert hoeffding_risk_upper(10, 100, log_eta=eta) == pytest.approx(0.1 + math.sqrt(math.log(20) / 200), abs=1e-14)
    assert hoeffding_risk_upper(90, 100, log_eta=eta) == 1.0
    charge = (math.log(20) + math.log(2)) / 100
    expected = min((1 - math.exp(-c * 0.1 - charge)) / (1 - math.exp(-c)) for c in (1.0, 2.0))
    assert catoni_risk_upper(10, 100, log_eta=eta, grid=(1.0, 2.0)) == pytest.approx(expected, abs=1e-14)
    kl = float(bernoulli_kl(0.1, maurer_seeger_risk_upper(10, 100, log_eta=eta)))
    assert kl == pytest.approx((math.log(20) + math.log(2 * math.sqrt(100))) / 100, rel=1e-9)


def test_catoni_pays_for_its_grid() -> None:
    """A peer's code tuned the parameter on the data and charged nothing."""
    eta = math.log(0.05)
    tuned_freely = min(catoni_risk_upper(200, 1000, log_eta=eta, grid=(c,)) for c in CATONI_GRID)
    assert catoni_risk_upper(200, 1000, log_eta=eta) > tuned_freely + 0.005
    paid = eta - math.log(len(CATONI_GRID))
    assert catoni_risk_upper(200, 1000, log_eta=eta) == pytest.approx(
        min(catoni_risk_upper(200, 1000, log_eta=paid, grid=(c,)) for c in CATONI_GRID)
    )


def test_gaussian_posterior() -> None:
    assert gaussian_kl([0.0] * 5, scale=0.3, prior_scale=0.3) == 0.0
    # One dimension by numerical integration of q ln(q/p).
    mean, s, t = 0.7, 0.2, 0.5
    xs = [mean - 2 + 4 * i / 20_000 for i in range(20_001)]

    def log_density(x: float, centre: float, scale: float) -> float:
        return -0.5 * ((x - centre) / scale) ** 2 - math.log(scale * math.sqrt(2 * math.pi))

    integral = (
        sum(math.exp(log_density(x, mean, s)) * (log_density(x, mean, s) - log_density(x, 0, t)) for x in xs) * 2e-4
    )
    assert gaussian_kl([mean], scale=s, prior_scale=t) == pytest.approx(integral, rel=1e-8)
    assert gaussian_kl([mean, mean], scale=s, prior_scale=t) == pytest.approx(2 * integral, rel=1e-8)
    upper = pac_bayes_kl_risk_upper(200, 1000, kl_nats=30.0, delta=0.05)
    assert upper == maurer_seeger_risk_upper(200, 1000, log_eta=math.log(0.05) - 30)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="positive scales"):
        gaussian_kl([0.0], scale=0.0, prior_scale=1.0)
    with pytest.raises(ValueError, match="kl_nats"):
        pac_bayes_kl_risk_upper(1, 10, kl_nats=-1.0, delta=0.05)
    with pytest.raises(ValueError, match="log_eta < 0"):
        hoeffding_risk_upper(1, 10, log_eta=0.0)
    with pytest.raises(ValueError, match="losses"):
        catoni_risk_upper(11, 10, log_eta=-1.0)
