"""Joint certificates: the union over the domains that the locks declare, and nothing that was not locked jointly."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lookup import BASE, Chain, method_lock

from pacbayes.bounds import binomial_risk_upper, certified_accuracy, log_failure_probability
from pacbayes.canonical import digest, parse_json
from pacbayes.certificate import (
    Certificate,
    CertificateError,
    Check,
    build_joint_certificate,
    not_checked_in,
    read_certificate,
    verify_certificate,
    write_certificate,
)
from pacbayes.declarations import DomainShare, Joint
from pacbayes.sample import Claim, DeltaShare, MethodLock, Reported, read_lock

DELTAS = {"sums": "0.02", "products": "0.03"}
JOINT = Joint(delta="0.05", shares=tuple(DomainShare(domain=name, delta=delta) for name, delta in DELTAS.items()))


def domain_method(domain: str, joint: Joint | None = JOINT, **changes: Any) -> MethodLock:
    """The method of one domain of the joint statement."""
    fields: dict[str, Any] = {
        "claim": Claim(base="table", base_digest=BASE, domain=domain, population="numbers"),
        "delta": DELTAS[domain],
        "delta_shares": (DeltaShare(name="accuracy", value=DELTAS[domain]),),
        "reported": Reported(domains=tuple(DELTAS), jointly=joint is not None),
        "joint": joint,
        "prompts": 200,
        "heldout": 0,
    }
    return method_lock(**{**fields, **changes})


def part(folder: Path, domain: str, **changes: Any) -> tuple[Certificate, MethodLock]:
    """Certify one domain into folder/domain."""
    method = domain_method(domain, **changes)
    certificate = Chain.draw(method, folder / "log").certify(folder / domain, 0, [4, 4, 3, 4])
    return certificate, method


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    parts = [part(folder, domain) for domain in ("products", "sums")]  # the order of the lock, not of the call
    write_certificate(folder / "joint.json", build_joint_certificate(parts))
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def failures(folder: Path) -> list[Check]:
    return [check for check in verify_certificate(folder / "joint.json") if not check.ok]


def test_it_says_what_its_domains_say(run: Path) -> None:
    shown = json.loads((run / "joint.json").read_text())
    assert [line["name"] for line in shown["deltas"]["lines"]] == ["sums", "products"]
    assert (shown["delta"], shown["deltas"]["total"]) == (0.05, 0.05)
    for row in shown["domains"]:
        own = read_certificate(run / row["domain"] / "certificate.json")
        assert row["certified_accuracy"] == own.bound.certified_accuracy
        assert row["certificate"] == digest(own.to_json())
        losses, bits = own.bound.losses, own.bits.total
        limit = certified_accuracy(losses, 200, bits=bits, delta=float(DELTAS[row["domain"]]))
        assert limit - 1.1e-6 < row["certified_accuracy"] <= limit
    assert shown["statement"].startswith("With 95 % confidence, all of these hold at once: the model tuned for sums")


def test_v0_looks_into_every_domain(run: Path) -> None:
    checks = verify_certificate(run / "joint.json")
    assert all(check.ok for check in checks), checks
    assert {"certificate of sums", "certificate of products", "delta", "domains"} <= {check.name for check in checks}
    assert any("sums, products" in text for text in not_checked_in(run / "joint.json"))


@pytest.mark.parametrize("place", ["{}.json", "certificates/{}.json"])
def test_the_domains_certificates_may_lie_elsewhere(copy: Path, place: str) -> None:
    for domain in DELTAS:
        target = copy / place.format(domain)
        target.parent.mkdir(exist_ok=True)
        shutil.move(copy / domain / "certificate.json", target)
    assert failures(copy) == []


def test_a_domain_whose_files_do_not_hold_fails_the_whole(copy: Path) -> None:
    path = copy / "sums" / "certificate.json"
    shown = json.loads(path.read_text())
    shown["bound"]["certified_accuracy"] = 0.99
    path.write_text(json.dumps(shown))
    failed = failures(copy)
    assert [check.name for check in failed] == ["certificate of sums"]
    assert "claims an accuracy of 0.99" in failed[0].detail
    path.unlink()
    assert "certificate of sums is missing" in failures(copy)[0].detail


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, (*path, index))]
    return [path]


def test_no_value_can_be_changed_or_left_out(copy: Path) -> None:
    path = copy / "joint.json"
    original = json.loads(path.read_text())
    for leaf in _leaves(original):
        shown = json.loads(json.dumps(original))
        parent = shown
        for key in leaf[:-1]:
            parent = parent[key]
        old = parent[leaf[-1]]
        parent[leaf[-1]] = old + 0.001 if isinstance(old, float) else old + 1 if isinstance(old, int) else f"1{old}"
        path.write_text(json.dumps(shown))
        assert failures(copy), leaf
    path.write_text(json.dumps({**original, "domains": original["domains"][:1]}))
    assert failures(copy)
    path.write_text(json.dumps({**original, "domains": original["domains"][::-1]}))
    assert failures(copy)


def test_a_joint_certificate_is_no_part_of_one(copy: Path) -> None:
    """Two files that name each other, or one that names itself, must not keep a verifier busy for ever."""
    shutil.rmtree(copy / "sums")
    shutil.copy(copy / "joint.json", copy / "sums.json")
    failed = [check for check in verify_certificate(copy / "sums.json") if not check.ok]
    assert [check.name for check in failed] == ["certificate of sums"]
    assert "no valid certificate" in failed[0].detail


@pytest.mark.parametrize("domain", ["../sums", "..", "a/b", "/etc", "sums\n", ""])
def test_a_domain_is_no_path(copy: Path, domain: str) -> None:
    shown = json.loads((copy / "joint.json").read_text())
    shown["domains"][0]["domain"] = domain
    (copy / "joint.json").write_text(json.dumps(shown))
    failed = failures(copy)
    assert len(failed) == 1
    assert "domains.0.domain" in failed[0].detail


def test_what_was_not_locked_jointly_is_refused(tmp_path: Path) -> None:
    """Certificates at 95 % each, read together: each holds, all of them need not."""
    apart = [part(tmp_path / "apart", domain, joint=None) for domain in DELTAS]
    assert "hold each with its own confidence, not all of them jointly" in " ".join(apart[0][0].assumptions)
    with pytest.raises(CertificateError, match=r"sums declares no joint statement.*hold each.*not jointly"):
        build_joint_certificate(apart)
    other = Joint(delta="0.1", shares=JOINT.shares)
    mixed = [part(tmp_path / "a", "sums"), part(tmp_path / "b", "products", joint=other)]
    with pytest.raises(CertificateError, match="declare different joint statements"):
        build_joint_certificate(mixed)


def test_every_declared_domain_must_be_there_once(tmp_path: Path) -> None:
    sums, products = (part(tmp_path, domain) for domain in DELTAS)
    for parts in ([sums], [sums, sums], [sums, products, sums]):
        with pytest.raises(CertificateError, match="is about sums, products, once each"):
            build_joint_certificate(parts)
    with pytest.raises(CertificateError, match="got none"):
        build_joint_certificate([])
    with pytest.raises(CertificateError, match="belongs to another method lock"):
        build_joint_certificate([(sums[0], products[1]), products])


def test_a_development_run_is_no_part(tmp_path: Path) -> None:
    parts = [part(tmp_path, "sums"), part(tmp_path, "products", purpose="development")]
    with pytest.raises(CertificateError, match="products is a development run"):
        build_joint_certificate(parts)


def test_golden_lock() -> None:
    """Any change here makes joint statements that were locked unreadable."""
    digest_of_sums = "01ea1e4d5e2c75b0d4672d77b76160b5a257f574a27af797a55b2842d5d447a3"
    assert domain_method("sums").digest == digest_of_sums


def test_the_lock_is_what_is_read_from_the_file(run: Path) -> None:
    method = read_lock(run / "sums" / "method.lock.json", MethodLock)
    assert method.joint == JOINT
    assert parse_json((run / "sums" / "method.lock.json").read_bytes())["joint"]["delta"] == "0.05"


def test_each_domain_fails_at_its_share_and_all_at_most_at_the_sum() -> None:
    """At the edges, where the promise is met exactly: .02, .03 and together 1 - .98 * .97."""
    runs, n = 20_000, 500
    rng = np.random.default_rng(12)
    failed = []
    for delta in (0.02, 0.03):
        risk = binomial_risk_upper(100, n, log_eta=log_failure_probability(0.0, delta)) + 1e-9
        limits = np.array([certified_accuracy(k, n, bits=0.0, delta=delta) for k in range(n + 1)])
        failed.append(limits[rng.binomial(n, risk, runs)] > 1 - risk)
        assert abs(float(failed[-1].mean()) - delta) < 4 * math.sqrt(delta / runs)
    together = float((failed[0] | failed[1]).mean())
    assert abs(together - (1 - 0.98 * 0.97)) < 4 * math.sqrt(0.05 / runs)
    assert together <= 0.05 + 4 * math.sqrt(0.05 / runs)
