"""The limit on flips after an audit: exact, and never violated more often than delta, however many flip."""

import itertools
from fractions import Fraction

import pytest
from exact_tails import hypergeometric_cdf
from mpmath import mp

from pacbayes.bounds import PairedCounts, certified_gain, flips_upper, gain_with_flips

DELTA = 0.01
SHARES = {"bits": 40.0, "delta_accuracy": 0.03, "delta_base": 0.01, "delta_paired": 0.01}


def test_every_small_audit_is_on_the_edge() -> None:
    """L+ flips are possible at delta and L+ + 1 are not, in integers."""
    for total in (1, 2, 7, 20):
        for regenerated in range(1, total + 1):
            for flips in range(regenerated + 1):
                limit = flips_upper(flips, regenerated, total, delta=DELTA)
                most = total - regenerated + flips
                assert flips <= limit <= most
                assert hypergeometric_cdf(flips, total, limit, regenerated) >= Fraction(DELTA)
                if limit < most:
                    assert hypergeometric_cdf(flips, total, limit + 1, regenerated) < Fraction(DELTA)


def test_a_large_audit_against_mpmath() -> None:
    """200 of 3,000 without a flip: (1 - 200/3000)(1 - 200/2999)... falls below 1 % with the 66th flip."""
    limit = flips_upper(0, 200, 3000, delta=DELTA)
    with mp.workdps(40):

        def none(flips: int) -> mp.mpf:
            return mp.binomial(3000 - flips, 200) / mp.binomial(3000, 200)

        assert none(limit) >= mp.mpf(DELTA) > none(limit + 1)
    assert limit == 65


@pytest.mark.parametrize(("total", "regenerated"), [(30, 7), (60, 15), (200, 40)])
def test_no_number_of_flips_violates_the_limit_more_often_than_delta(total: int, regenerated: int) -> None:
    """The adversary chooses how many flip; the rate of violations is exact, and for some number not far below delta."""
    worst = Fraction(0)
    for flips in range(total + 1):
        violated = [
            seen for seen in range(regenerated + 1) if flips_upper(seen, regenerated, total, delta=DELTA) < flips
        ]
        # L+ grows with what is seen, so the violations are the smallest counts.
        rate = hypergeometric_cdf(max(violated), total, flips, regenerated) if violated else Fraction(0)
        worst = max(worst, rate)
    assert 0.8 * DELTA < worst <= Fraction(DELTA)


def test_the_ends() -> None:
    assert flips_upper(0, 0, 50, delta=DELTA) == 50  # nothing was looked at
    assert flips_upper(3, 50, 50, delta=DELTA) == 3  # everything was
    assert flips_upper(0, 0, 0, delta=DELTA) == 0
    with pytest.raises(ValueError, match="flips <= regenerated <= total"):
        flips_upper(2, 1, 5, delta=DELTA)
    with pytest.raises(ValueError, match="delta"):
        flips_upper(0, 1, 5, delta=1.0)


def test_a_gain_with_flips_is_the_least_over_all_ways_to_flip() -> None:
    """By enumeration of every way in which the flips can fall on the prompts."""
    counts = PairedCounts(won=30, lost=4, both=20, n=70)
    coded_flips, base_flips = 3, 2
    worst = gain_with_flips(counts, coded_flips=coded_flips, base_flips=base_flips, **SHARES)
    marginals, paired = [], []
    # i of the coded flips fall on won prompts (the others on both), j of the base flips on won ones, k on the same.
    for i, j in itertools.product(range(coded_flips + 1), range(base_flips + 1)):
        for k in range(min(i, j) + 1):
            won = counts.won - i - j + k
            lost = counts.lost + (coded_flips - i) + (base_flips - j) + k
            both = counts.both - (coded_flips - i) + (j - k)
            gain = certified_gain(PairedCounts(won=won, lost=lost, both=both, n=counts.n), **SHARES)
            marginals.append(gain.marginal)
            paired.append(gain.paired)
    assert worst.marginal == pytest.approx(min(marginals), abs=1e-12)
    assert worst.paired == pytest.approx(min(paired), abs=1e-9)
    assert worst.paired < certified_gain(counts, **SHARES).paired


def test_a_gain_without_flips_is_the_gain_and_too_many_leave_nothing_of_the_bet() -> None:
    counts = PairedCounts(won=300, lost=40, both=200, n=700)
    same = gain_with_flips(counts, coded_flips=0, base_flips=0, **SHARES)
    assert same == certified_gain(counts, **SHARES)
    assert gain_with_flips(counts, coded_flips=200, base_flips=161, **SHARES).paired == -1.0
    with pytest.raises(ValueError, match="flips that fit"):
        gain_with_flips(counts, coded_flips=501, base_flips=0, **SHARES)
