"""The certificate in words: the statement, what it takes for granted, and what cannot be seen without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from pacbayes.certificate.schema import Bound, Certificate, Gain, Holdout, PolicyResult
from pacbayes.declarations import ACCURACY_SHARE, GAIN_SHARES, HOLDOUT_SHARE
from pacbayes.sample import FinitePool, MethodLock, SampleLock


def statement(
    method: MethodLock,
    bound: Bound,
    results: Mapping[str, PolicyResult],
    gain: Gain | None,
    holdout: Holdout | None = None,
) -> str:
    """The certificate in words for somebody who knows nothing of bounds."""
    confidence = confidence_of(method, ACCURACY_SHARE)
    certified = percent_down(bound.certified_accuracy)
    where = where_of(method)
    base = f", its base model {100 * results['base'].accuracy:.1f} %" if "base" in results else ""
    text = (
        f"With {confidence} % confidence, the tuned model answers at least {certified} % {where} correctly; "
        f"on the {bound.n:,} prompts of its training sample it answered {100 * results['coded'].accuracy:.1f} %{base}."
    )
    if gain is not None and gain.certified > 0:
        text += (
            f" With {confidence_of(method, ACCURACY_SHARE, *GAIN_SHARES)} % confidence, that is at least "
            f"{percent_down(gain.certified)} points above the base model's accuracy on such prompts."
        )
    if holdout is not None and method.share(HOLDOUT_SHARE):
        text += (
            f" With {confidence_of(method, ACCURACY_SHARE, HOLDOUT_SHARE)} % confidence, that accuracy holds and so "
            f"does what {holdout.n:,} held-out prompts say by themselves: at least "
            f"{percent_down(holdout.certified_accuracy)} %."
        )
    if "base" in results and bound.certified_accuracy <= results["base"].accuracy:
        text += " That is not more than was measured of the base model: as a claim of improvement it says nothing."
    if method.purpose == "development":
        text = f"Development run, not a certificate: {text}"
    return text


def where_of(method: MethodLock) -> str:
    """What the accuracy is the accuracy of: "of new … prompts", or of a pool or its part that was not drawn."""
    prompts = f"{method.claim.domain} prompts ({method.claim.population})"
    if not isinstance(method.design, FinitePool):
        return f"of new {prompts}"
    part, _ = method.design.statement(method.bound)
    if part == "unseen":
        return f"of the {method.design.pool_size - method.prompts:,} {prompts} of the pool that were not drawn"
    return f"of the {method.design.pool_size:,} {prompts} of the pool"


def assumptions(method: MethodLock, sample: SampleLock, missing: Mapping[str, int]) -> Iterator[str]:
    """What the statement takes for granted, one sentence each.

    Args:
        missing: number of missing evidence rows on the sample, by policy.
    """
    part, outcome = method.design.statement(method.bound) if isinstance(method.design, FinitePool) else (None, None)
    yield from common_assumptions(method, sample, part, outcome)
    domains = ", ".join(method.reported.domains)
    if method.joint is not None:
        yield (
            f"Read jointly, the certificates of {domains} fail with probability at most {method.joint.delta}: so they "
            "were locked, each with its share."
        )
    elif method.reported.jointly:
        yield f"Read jointly, the certificates of {domains} fail with at most the sum of their deltas."
    elif len(method.reported.domains) > 1:
        yield f"The certificates of {domains} hold each with its own confidence, not all of them jointly."
    if sample.heldout:
        if method.share(HOLDOUT_SHARE):
            how = "jointly with the certificate, by its own share of delta"
        else:
            how = "by itself, not jointly with the certificate"
        yield (
            f"The accuracies on the {len(sample.heldout)} held-out prompts are measurements; the hold-out bound holds "
            f"if no choice looked at them, and {how}."
        )
    yield from missing_outcomes(missing)


def common_assumptions(method: MethodLock, sample: SampleLock, part: str | None, outcome: str | None) -> Iterator[str]:
    """What every kind of certificate about one sample takes for granted; part and outcome are those of a pool."""
    claim, generation = method.claim, method.generation
    if method.purpose == "development":
        yield "Development run: samples for this claim are not counted, so this is no certificate."
    if isinstance(method.design, FinitePool):
        yield (
            f"The {method.prompts} prompts are a uniform subset of a pool of {method.design.pool_size}, fixed, "
            "right answers included, before the draw; nothing is said of prompts outside it."
        )
        if outcome == "realised":
            yield "The statement is about the answers under the committed noise, not about expected accuracy."
        elif part == "unseen":
            yield "The statement is about expected accuracy over fresh noise, on the prompts that were not drawn."
        else:
            yield "The statement is about expected accuracy over fresh noise, on all prompts of the pool."
    else:
        yield (
            f"The {method.prompts} prompts are independent draws from the population {claim.population!r}, and the "
            "base model, the menu and everything else in the method lock do not depend on them."
        )
    if method.prior_data is not None:
        yield (
            f"The prior was made from {len(method.prior_data.prompts)} labelled prompts "
            f"({method.prior_data.description}), none of which is in the sample: new prompts are others than these."
        )
    yield (
        "The method was locked before the prompts were drawn, and the prompts before the training: this is what the "
        "producer says, the locks carry no public time stamp."
    )
    if sample.beacon is None:
        yield (
            "No public random number went into the draw of prompts and noise: this assumes that the producer did not "
            "grind, that is, did not try one method after another until the draw was a lucky one."
        )
    else:
        yield f"The beacon {sample.beacon!r} was public, and unpredictable when the method was locked."
    if method.purpose == "certificate":
        yield (
            f"This is sample number {sample.attempt} for this base, domain and population; samples that the producer "
            "drew without entering them in the log of attempts are not paid for."
        )
    yield "SHA-256 and Philox behave as ideal random functions: the confidence is over the key of the noise."
    yield (
        f"A right answer is one that the verifier {claim.domain} {method.verifier} accepts; whether it is true or "
        "useful is another question."
    )
    yield (
        f"The claim is about one completion per prompt, sampled at temperature "
        f"{plain(Decimal(repr(generation.temperature)))} with at most {generation.max_new_tokens} new tokens by the "
        f"engine {generation.engine} in {generation.dtype} at batch size {generation.batch_size}; elsewhere near-ties "
        "may fall the other way."
    )
    if method.draws > 1:
        yield f"Each prompt was answered {method.draws} times; prompts are the units of the bound, not completions."


def missing_outcomes(missing: Mapping[str, int]) -> Iterator[str]:
    """How many outcomes are missing and how they were counted, by policy."""
    for name, count in missing.items():
        if count:
            verdict = "right" if name == "base" else "wrong"
            yield f"{count} of the outcomes of {name!r} on the sample are missing and were counted as {verdict}."


def confidence_of(method: MethodLock, *shares: str) -> str:
    """One minus the sum of these shares of δ, in per cent."""
    return plain(100 * (1 - sum((method.share(name) for name in shares), Decimal(0))))


def percent_down(fraction: float) -> str:
    """A fraction in per cent, rounded down to one decimal."""
    return plain((100 * Decimal(repr(fraction))).quantize(Decimal("0.1"), rounding=ROUND_FLOOR))


def percent_up(fraction: float) -> str:
    """A fraction in per cent, rounded up to one decimal."""
    return plain((100 * Decimal(repr(fraction))).quantize(Decimal("0.1"), rounding=ROUND_CEILING))


def plain(value: Decimal) -> str:
    """A decimal without an exponent and without zeros at its end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def not_checked(certificate: Certificate, level: int = 0) -> list[str]:
    """What a verification up to `level` (V0 to V3) cannot see; verifiers print it beside the checks."""
    beacon = certificate.noise.beacon
    lines = [
        "that the method was locked before the prompts were drawn, and both before the training: the producer says so, "
        "unless the digest of the method lock was publicly time-stamped",
        "that no public random number was needed to keep the producer from grinding"
        if beacon is None
        else f"that the beacon {beacon!r} is public and was published after the method was locked",
        f"that attempt number {certificate.attempt.number} is the true count: drawn samples can be left out of the log",
    ]
    if level < 1:
        lines += [
            "that the prompts and right answers are those that the seed draws from the population (needs the domain: "
            "V1)",
            "that the verdicts are those of the verifier (needs the domain: V1)",
        ]
    if level < 2:
        lines += [
            "that the completions are those of the decoded message under the committed noise (needs the model: V2, V3)",
            "that the prior artifact and the policy's weights have the digests shown, and the device, versions and "
            "stages",
        ]
    elif level < 3:
        lines += [
            "the completions that were not regenerated, beyond the limit given; those of the held-out prompts and of "
            "the policies other than 'coded'",
            "the device, versions and stages",
        ]
    return [*lines, "whatever the assumptions in the certificate say"]
