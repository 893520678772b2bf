"""Mistakes found in the code of published bounds and of evaluation harnesses, each of which must be impossible here.

Those about verifiers and sandboxes are in the tests of `domains`; three are tested where the code is: the midpoint of a
bisection (`test_bounds_inversion`), Catoni's parameter tuned for nothing (`test_bounds_comparison`), and the noise of
one seed for all samples (`test_gumbel`).
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pydantic
import pytest
from lookup import MODEL, Chain, menu, method_lock

from pacbayes.bounds import certified_accuracy
from pacbayes.canonical import digest
from pacbayes.certificate import build_certificate
from pacbayes.codes import Menu, parse_code
from pacbayes.evidence import EvidenceError, read_evidence, write_evidence
from pacbayes.ledger import BitLedger, DeltaLedger, LedgerError
from pacbayes.sample import MAXIMUM_DIMENSION, DeltaShare


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain.draw(method_lock(prompts=37, heldout=0), tmp_path / "log")


def write(chain: Chain, path: Path, rows: list) -> None:  # type: ignore[type-arg]
    write_evidence(path, rows, sample_lock=chain.sample.digest, policies={"coded": digest(b"m"), "base": MODEL.weights})


def test_nothing_that_a_certificate_counts_can_be_typed_in() -> None:
    """Peers took n from a configuration's default, "extra bits" from the command line, the formula from the result."""
    arguments = set(inspect.signature(build_certificate).parameters)
    assert arguments == {"method", "sample", "message", "evidence", "policy", "engine", "stages", "pool"}


def test_extra_bits_cannot_be_negative() -> None:
    """A hand-typed correction with the default 0 had become -2."""
    with pytest.raises((LedgerError, pydantic.ValidationError)):
        BitLedger.of([("vector", 10.0, "the message"), ("extra", -2.0, "by hand")])


def test_the_bound_is_the_lock_s_whatever_comes_out(tmp_path: Path) -> None:
    """A peer used one formula below an observed accuracy and another above it; here a better one changes nothing."""
    method = method_lock(bound="hoeffding", prompts=200, heldout=0)
    certificate = Chain.draw(method, tmp_path / "log").certify(tmp_path / "run", 0, [6, 6, 6, 6])
    losses, bits = certificate.bound.losses, certificate.bits.total
    best = certified_accuracy(losses, 200, bits=bits, delta=0.05)
    assert certificate.bound.name == "hoeffding"
    assert certificate.bound.certified_accuracy < best - 0.01


def test_a_shuffled_evaluation_is_noticed(chain: Chain, tmp_path: Path) -> None:
    """A training loader that shuffles gave each verdict to another prompt; here a row names its prompt."""
    rows = chain.outcomes("coded", np.zeros(4))
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = [dataclasses.replace(rows[j], index=i) for i, j in enumerate(order)]
    write(chain, tmp_path / "e", shuffled)
    with pytest.raises(EvidenceError, match="not the prompt or occurrence"):
        read_evidence(tmp_path / "e").count("coded", "sample", chain.sample)


def test_the_mean_is_over_n_and_not_over_batches(chain: Chain, tmp_path: Path) -> None:
    """37 prompts in batches of 8: five batches, the last of 5. A peer divided by the last batch's index."""
    rows = chain.outcomes("coded", np.full(4, 2.0))
    for start in range(0, 37, 8):
        write(chain, tmp_path / "e", rows[start : start + 8])
    count = read_evidence(tmp_path / "e").count("coded", "sample", chain.sample)
    assert (count.n, count.correct) == (37, sum(row.correct for row in rows))
    assert count.accuracy == count.correct / 37


def test_a_second_start_truncates_nothing(chain: Chain, tmp_path: Path) -> None:
    """Results files opened for writing at every start lost what they held; and a lucky retry changes nothing."""
    rows = chain.outcomes("coded", np.zeros(4))
    write(chain, tmp_path / "e", rows)
    before = (tmp_path / "e").read_bytes()
    write(chain, tmp_path / "e", [])
    write(chain, tmp_path / "e", [dataclasses.replace(row, correct=True, reason="right") for row in rows])
    assert (tmp_path / "e").read_bytes() == before


def test_failed_samples_stay_in_the_mean(chain: Chain, tmp_path: Path) -> None:
    rows = chain.outcomes("coded", np.full(4, 9.0))
    write(chain, tmp_path / "e", rows[:20])
    count = read_evidence(tmp_path / "e").count("coded", "sample", chain.sample)
    assert (count.n, count.missing) == (37, 17)
    assert count.losses >= 17


def test_a_price_does_not_depend_on_the_place_in_a_dictionary() -> None:
    """A peer's penalty grew with the order in which settings stood in a dictionary."""
    first, second = menu()
    forward, backward = Menu(entries=(first, second)), Menu(entries=(second, first))
    for q in ((1, 0, -2, 3), (0, 0, 0, 0)):
        assert forward.bits(0, q) == backward.bits(1, q)
        assert forward.mixture_bits(1, q) == backward.mixture_bits(0, q)


def test_a_long_message_is_priced_by_its_bits_and_never_estimated() -> None:
    """Above 10,000 symbols a peer's bit string became an entropy; here a longer one is refused, a shorter one sent."""
    code = parse_code({"kind": "laplace", "ratio": "1/2", "bound": 3})
    q = [int(k) for k in np.random.default_rng(1).integers(-3, 4, 2000)]
    bits = code.encode(q)
    assert -code.log2_probability(q) <= len(bits) < -code.log2_probability(q) + 2
    assert code.decode(bits, 2000) == tuple(q)
    entry = menu()[0].model_copy(update={"dimension": MAXIMUM_DIMENSION + 1})
    with pytest.raises(pydantic.ValidationError, match="more than 10,000 integers"):
        method_lock(menu=(entry,))


def test_delta_is_spent_once() -> None:
    """A peer used the same delta for the bound and again for the estimate in it."""
    lines = [("accuracy", 0.05, "the bound"), ("hold-out", 0.05, "beside it")]
    assert DeltaLedger.of(lines).total == 0.1
    with pytest.raises(pydantic.ValidationError, match=r"add up to 0\.10, more than delta = 0\.05"):
        method_lock(delta_shares=tuple(DeltaShare(name=name, value="0.05") for name, _, _ in lines))


def test_noise_is_keyed_by_prompt_and_by_nothing_of_the_machine(chain: Chain) -> None:
    """Seeds per process or per replica repeat themselves; keys of a sample are all different, in any order."""
    keys = chain.keys()
    assert len(set(keys)) == len(keys) == 37
    assert chain.keys() == keys
