"""Locks and attempts: what may not be in them, what follows from them, and who may change them."""

from __future__ import annotations

import json
import multiprocessing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pydantic
import pytest
from lookup import BASE, Prompt, draw, menu, method_lock, replaced

from pacbayes import sample as sample_module
from pacbayes.canonical import canonical_json, digest, file_digest
from pacbayes.declarations import DomainShare, Joint, PriorData, Transfer
from pacbayes.sample import (
    AttemptLog,
    Claim,
    DeltaShare,
    FinitePool,
    LockError,
    MethodLock,
    Reported,
    SampleLock,
    attempt_bits,
    attempt_weight,
    heldout_noise_root,
    heldout_seed,
    lock_items,
    noise_root,
    read_lock,
    sample_seed,
    write_lock,
)

N, M = 400, 50


def joint(delta: str = "0.1", **shares: str) -> Joint:
    return Joint(delta=delta, shares=tuple(DomainShare(domain=name, delta=value) for name, value in shares.items()))


JOINTLY = Reported(domains=("remainders", "others"), jointly=True)
ACCURACY = (DeltaShare(name="accuracy", value="0.04"),)
POOL = FinitePool(pool_digest=digest(b"pool"), pool_size=450)


def prompts(method: MethodLock, beacon: str | None = None) -> tuple[list[Prompt], list[Prompt]]:
    return draw(sample_seed(method.digest, beacon), N), draw(heldout_seed(method.digest, beacon), M)


def register(log: Path, method: MethodLock, beacon: str | None = None) -> SampleLock:
    return AttemptLog(log).register(method, *prompts(method, beacon), beacon=beacon)


# --- method locks ------------------------------------------------------------------------------------------


def test_a_method_lock_reads_back_and_its_file_has_its_digest(tmp_path: Path) -> None:
    method = method_lock()
    write_lock(tmp_path / "method.lock.json", method)
    write_lock(tmp_path / "method.lock.json", method)
    assert read_lock(tmp_path / "method.lock.json", MethodLock) == method
    assert file_digest(tmp_path / "method.lock.json") == method.digest


def test_every_field_is_in_the_digest() -> None:
    method = method_lock()
    other_model = method.model.model_copy(update={"tokenizer": digest(b"other")})
    other_base = method.claim.model_copy(update={"base_digest": digest(other_model.to_json())})
    changes: dict[str, Any] = {
        "purpose": "development",
        "claim": Claim(base="table", base_digest=BASE, domain="remainders", population="other"),
        "model": other_model,
        "population": method.population.model_copy(update={"description": "other numbers"}),
        "verifier": "2",
        "generation": method.generation.model_copy(update={"temperature": 0.5}),
        "design": FinitePool(pool_digest=digest(b"pool"), pool_size=1000),
        "prompts": 401,
        "heldout": 51,
        "delta": "0.06",
        "delta_shares": (DeltaShare(name="accuracy", value="0.04"),),
        "bit_lines": ("menu entry", "vector", "attempt", "teacher"),
        "bound": "kl",
        "menu": menu()[:1],
        "reported": Reported(domains=("remainders", "others"), jointly=False),
        "prior_data": PriorData(description="a textbook", prompts=(digest(b"1"),)),
    }
    # The first two have one admissible value; the others need a second change beside them and follow below.
    unchanging = {"schema_", "noise", "draws", "transfer", "joint"}
    assert set(changes) | unchanging == set(MethodLock.model_fields)
    shares = (DeltaShare(name="accuracy", value="0.03"), DeltaShare(name="disagreement", value="0.02"))
    transfers = [Transfer(policy="lora", teachers=t, prompts=9, drawn="population") for t in (1, 2)]
    assert len({replaced(method, delta_shares=shares, transfer=t).digest for t in transfers}) == 2
    reported = Reported(domains=("remainders", "others"), jointly=True)
    joints = [None, joint(remainders="0.05", others="0.05"), joint(remainders="0.05", others="0.04")]
    assert len({replaced(method, reported=reported, joint=j).digest for j in joints}) == 3
    assert replaced(method, claim=other_base, model=other_model).digest != method.digest
    assert replaced(method, draws=2, bound="betting").digest != replaced(method, bound="betting").digest
    del changes["model"]
    digests = {replaced(method, **{name: value}).digest for name, value in changes.items()}
    assert len(digests | {method.digest}) == len(changes) + 1


def test_golden_locks(tmp_path: Path) -> None:
    """Any change here makes every lock that was ever written unreadable: it needs a new version of the schema."""
    assert method_lock().digest == "e25802c320f61d565455eeb15be012ecf9a2720f460a0169c3760eb6fa3f6df6"
    sample = register(tmp_path / "log", method_lock())
    assert sample.digest == "75a75db827ccff8561e0288abfa945a4de60d3461d5e641502f9c383552f34ec"


def test_golden_locks_with_later_fields() -> None:
    """Their digests are fixed from when they were first written; a transfer's and a joint's have tests of their own."""
    prior = PriorData(description="a textbook", prompts=(digest(b"1"),))
    assert method_lock(prior_data=prior).digest == "34814b0d2ffddbab86d4ad7b75120c99e3ed424b1410aae90f44d81f326d1a1a"
    design = POOL.model_copy(update={"part": "pool", "outcome": "realised"})
    pool = method_lock(design=design, bound="hypergeometric")
    assert pool.to_json()["design"] == {**POOL.to_json(), "part": "pool", "outcome": "realised"}


def test_locks_have_a_json_schema() -> None:
    for kind in (MethodLock, SampleLock):
        schema = kind.model_json_schema(by_alias=True)
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == {name.rstrip("_") for name in kind.model_fields}


def test_a_copy_has_its_own_digest() -> None:
    method = method_lock()
    before = method.digest
    assert method.model_copy(update={"verifier": "2"}).digest == replaced(method, verifier="2").digest != before
    assert method == method_lock()


def test_locks_hold_no_time_path_seed_or_hardware() -> None:
    text = json.dumps(method_lock().to_json()).lower()
    for word in ("time", "path", "seed", "hostname", "device", "run_name", "date", "cpu", "cuda"):
        assert f'"{word}' not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": "0.0"}, "delta must lie in"),
        ({"delta": "1.0"}, "pattern"),
        ({"delta": 0.05}, "string"),
        ({"delta": "5e-2"}, "pattern"),
        ({"delta_shares": (DeltaShare(name="a", value="0.03"), DeltaShare(name="b", value="0.03"))}, "add up to 0.06"),
        ({"delta_shares": (DeltaShare(name="a", value="0.01"), DeltaShare(name="a", value="0.01"))}, "twice"),
        ({"delta_shares": (DeltaShare(name="a", value="0.00"),)}, "zero"),
        ({"menu": (menu()[0], menu()[0])}, "differ"),
        ({"menu": ()}, "at least 1"),
        ({"prompts": True}, "integer"),
        ({"prompts": 400.0}, "integer"),
        ({"prompts": 0}, "greater than or equal to 1"),
        ({"noise": "another noise"}, "asks for 'another noise'"),
        ({"design": FinitePool(pool_digest=digest(b""), pool_size=449)}, "do not fit"),
        ({"claim": Claim(base="x", base_digest=digest(b"x"), domain="remainders", population="p")}, "base_digest"),
        ({"claim": Claim(base="x", base_digest=BASE, domain="chess", population="p")}, "not among the reported"),
        ({"menu": (menu()[0].model_copy(update={"dimension": 10**12}),)}, "more than 10,000 integers"),
        ({"bound": "hypergeometric"}, "for the design iid the bound is one of binomial"),
        ({"bound": "best"}, "got 'best'"),
        ({"draws": 4}, "4 draws per prompt need the bound 'betting'"),
        ({"delta_shares": (*ACCURACY, DeltaShare(name="tranfser", value="0.01"))}, "no statement uses .* 'tranfser'"),
        ({"delta_shares": (*ACCURACY, DeltaShare(name="student", value="0.01"))}, "'student' is for a transfer"),
        ({"delta_shares": (*ACCURACY, DeltaShare(name="hold-out", value="0.01")), "heldout": 0}, "takes held-out"),
        ({"joint": joint(remainders="0.05", others="0.05")}, "reported jointly"),
        ({"joint": joint(others="0.05", remainders="0.05"), "reported": JOINTLY}, "in their order"),
        ({"joint": joint(remainders="0.04", others="0.05"), "reported": JOINTLY}, "a delta of 0.04, the lock 0.05"),
        ({"design": {**POOL.to_json(), "part": "pool"}}, "declared together"),
        ({"design": {**POOL.to_json(), "part": "unseen", "outcome": "realised"}}, "'binomial' can certify pool exp"),
        ({"design": POOL, "prior_data": {"description": "x", "prompts": ["0" * 64]}}, "may depend on all of a finite"),
        ({"prior_data": {"description": "x", "prompts": ["1" * 64, "0" * 64]}}, "must be sorted"),
        ({"prior_data": {"description": "x", "prompts": ["1" * 64, "1" * 64]}}, "must be sorted"),
        ({"prior_data": {"description": "x", "prompts": ["１" * 64]}}, "pattern"),
        ({"design": POOL, "bound": "kl"}, "for the design finite_pool the bound is one of"),
        ({"design": POOL, "prompts": 450, "heldout": 0, "bound": "hypergeometric"}, "and all were"),
        ({"started": "2030-01-01"}, "Extra inputs"),
    ],
)
def test_a_method_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        method_lock(**changes)


def test_a_domain_cannot_be_a_path() -> None:
    with pytest.raises(pydantic.ValidationError, match="pattern"):
        Claim(base="x", base_digest=BASE, domain="../../etc", population="p")


def test_a_menu_that_sums_to_more_than_one_is_refused() -> None:
    first, second = menu()
    with pytest.raises(pydantic.ValidationError, match="at most 1"):
        method_lock(menu=(first, second.model_copy(update={"probability": "1/2"})))


def test_a_changed_lock_names_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "method.lock.json"
    write_lock(path, method_lock())
    before = path.read_bytes()
    changed = replaced(method_lock(), generation=method_lock().generation.model_copy(update={"temperature": 0.5}))
    with pytest.raises(LockError, match=r"generation\.temperature was 1\.0 and now is 0\.5"):
        write_lock(path, changed)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "valid dictionary|object"),
        (b'{"schema":"prlvr/method-lock/1"}', "Field required"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a":1,"a":1}', "twice"),
    ],
)
def test_a_file_that_is_no_lock_is_one_clear_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "method.lock.json"
    path.write_bytes(data)
    with pytest.raises(LockError, match=message) as caught:
        read_lock(path, MethodLock)
    assert "\n" not in str(caught.value)
    assert "method.lock.json" in str(caught.value)


def test_missing_reformatted_and_foreign_locks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="No such file"):
        read_lock(tmp_path / "method.lock.json", MethodLock)
    path = tmp_path / "lock.json"
    path.write_text(json.dumps(method_lock().to_json(), indent=1))
    with pytest.raises(LockError, match="not the canonical JSON"):
        read_lock(path, MethodLock)
    path.write_bytes(method_lock().to_bytes())
    with pytest.raises(LockError, match="no valid sample lock"):
        read_lock(path, SampleLock)


# --- what a lock may declare beside the accuracy ------------------------------------------------------------


def test_what_is_not_declared_leaves_no_trace() -> None:
    assert {"transfer", "joint", "prior_data"} & set(method_lock().to_json()) == set()
    assert set(method_lock(design=POOL).to_json()["design"]) == {"kind", "pool_digest", "pool_size"}
    content = {**method_lock().to_json(), "transfer": None}
    with pytest.raises(LockError, match="not the canonical JSON"):  # one lock, one spelling
        sample_module.parse_lock(canonical_json(content), MethodLock, name="method.lock.json")


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"a": "0.06", "b": "0.05"}, "add up to 0.11, more than the joint delta of 0.1"),
        ({"a": "0.0", "b": "0.05"}, "delta in"),
        ({"a": "0.05"}, "at least 2"),
        ({"../a": "0.05", "b": "0.05"}, "pattern"),
    ],
)
def test_a_joint_statement_that_does_not_add_up_is_refused(shares: dict[str, str], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        joint(**shares)


@pytest.mark.parametrize("split", ["sample", "heldout"])
def test_a_sample_that_overlaps_with_the_prior_s_data_is_refused(tmp_path: Path, split: str) -> None:
    """When it is locked, and by whoever reads the locks; the prompts follow from the lock, so they are put there."""
    items, heldout = [Prompt(1), Prompt(2)], [Prompt(3)]
    used = {"sample": items[1], "heldout": heldout[0]}[split]
    of_prior = tuple(sorted([used.prompt_digest, Prompt(77).prompt_digest]))
    method = method_lock(prompts=2, heldout=1, prior_data=PriorData(description="a textbook", prompts=of_prior))
    log = AttemptLog(tmp_path / "log")
    with pytest.raises(LockError, match=f"made from data that the sample holds.*{used.prompt_digest[:12]}"):
        log.register(method, items, heldout)
    assert log.entries() == []
    others = log.register(method, [Prompt(4), Prompt(5)], [Prompt(6)])
    forged = others.to_json()
    forged["items"][0] = lock_items([Prompt(77)])[0].to_json()
    sample = sample_module.parse_lock(canonical_json(forged), SampleLock, name="sample.lock.json")
    with pytest.raises(LockError, match="made from data that the sample holds: number 0 of the prompts"):
        sample.check_method(method)


# --- seeds and roots ---------------------------------------------------------------------------------------


def test_golden_seeds() -> None:
    """Any change here changes every committed sample and noise."""
    method, sample = "11" * 32, "22" * 32
    assert sample_seed(method, None) == digest(f'["prlvr/1","sample","{method}",null]'.encode())
    assert noise_root(method, sample, "beacon") == digest(
        f'["prlvr/1","noise","{method}","{sample}","beacon"]'.encode()
    )
    assert sample_seed(method, None) == "329b7f6ac46e5a4ccc4425ecc1def5c3c05c597a049905f91a16a6c4373f830a"


def test_all_that_is_derived_differs() -> None:
    method, sample = "11" * 32, "22" * 32
    derived = [
        function(*arguments, beacon)
        for beacon in (None, "", "null", "beacon")
        for function, arguments in (
            (sample_seed, (method,)),
            (heldout_seed, (method,)),
            (noise_root, (method, sample)),
            (noise_root, (sample, method)),
            (heldout_noise_root, (method, sample)),
        )
    ]
    assert len(set(derived)) == len(derived)


def test_development_draws_other_prompts_than_a_certificate() -> None:
    method = method_lock()
    assert sample_seed(method.digest, None) != sample_seed(replaced(method, purpose="development").digest, None)


# --- sample locks ------------------------------------------------------------------------------------------


def test_repeated_prompts_get_their_own_occurrence() -> None:
    items = lock_items([Prompt(5), Prompt(7), Prompt(5), Prompt(5)])
    assert [item.occurrence for item in items] == [0, 0, 1, 2]


@pytest.mark.parametrize("change", ["seed", "occurrence", "previous", "attempt"])
def test_a_sample_lock_that_contradicts_itself_is_refused(tmp_path: Path, change: str) -> None:
    sample = register(tmp_path / "log", method_lock())
    content = sample.to_json()
    if change == "seed":
        content["seed"] = digest(b"a better seed")
    elif change == "occurrence":
        content["items"][3]["occurrence"] = 1
    elif change == "previous":
        content["previous"] = digest(b"x")
    else:
        content["attempt"] = 2
    with pytest.raises(LockError, match=f"{change}|attempt") as caught:
        sample_module.parse_lock(canonical_json(content), SampleLock, name="sample.lock.json")
    assert "\n" not in str(caught.value)


def test_a_sample_belongs_to_one_method(tmp_path: Path) -> None:
    method = method_lock()
    sample = register(tmp_path / "log", method)
    sample.check_method(method)
    with pytest.raises(LockError, match="belongs to method"):
        sample.check_method(replaced(method, verifier="2"))


def test_n_is_the_method_s(tmp_path: Path) -> None:
    method = method_lock()
    items, heldout = prompts(method)
    with pytest.raises(LockError, match="declares 400 prompts, the sample lock holds 399"):
        AttemptLog(tmp_path / "log").register(method, items[:-1], heldout)
    with pytest.raises(LockError, match="declares 50 held-out prompts, the sample lock holds 0"):
        AttemptLog(tmp_path / "log").register(method, items)


# --- attempts ----------------------------------------------------------------------------------------------


def test_weights_are_those_of_the_rule_and_add_up_to_at_most_one() -> None:
    assert [attempt_weight(t) for t in (1, 2, 3, 4)] == [
        Fraction(15, 16),
        Fraction(1, 32),
        Fraction(1, 96),
        Fraction(1, 192),
    ]
    assert sum(attempt_weight(t) for t in range(1, 1001)) == 1 - Fraction(1, 16 * 1000)
    assert attempt_bits(1) == pytest.approx(0.09311, abs=1e-5)
    assert attempt_bits(2) == 5
    with pytest.raises(ValueError, match="count from 1"):
        attempt_weight(0)


def test_every_other_method_for_the_same_claim_is_one_more_attempt(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    first = register(log, method)
    second = register(log, replaced(method, verifier="2"))
    third = register(log, replaced(method, bound="kl"))
    beacon = register(log, method, beacon="the first lottery after the lock")
    assert [lock.attempt for lock in (first, second, third, beacon)] == [1, 2, 3, 4]
    assert [lock.previous for lock in (second, third, beacon)] == [first.digest, second.digest, third.digest]
    assert [entry.sample for entry in AttemptLog(log).entries()] == [
        first.digest,
        second.digest,
        third.digest,
        beacon.digest,
    ]


def test_the_same_method_and_beacon_is_the_same_attempt(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    first = register(log, method)
    register(log, replaced(method, verifier="2"))
    size = log.stat().st_size
    assert register(log, method) == first
    assert log.stat().st_size == size


def test_other_claims_are_counted_apart_but_a_renamed_base_is_not(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    register(log, method)
    elsewhere = Claim(base="table", base_digest=BASE, domain="remainders", population="other numbers")
    assert register(log, replaced(method, claim=elsewhere)).attempt == 1
    model = method.model.model_copy(update={"config": digest(b"a new line in the configuration")})
    renamed = method.claim.model_copy(update={"base": "a better name", "base_digest": digest(model.to_json())})
    assert register(log, replaced(method, claim=renamed, model=model)).attempt == 2


def test_development_is_not_counted(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    sample = register(log, replaced(method, purpose="development"))
    assert (sample.attempt, sample.previous) == (0, None)
    assert AttemptLog(log).entries() == []
    with pytest.raises(LockError, match="does not fit the purpose"):
        sample.model_copy(update={"method": method.digest}).check_method(method)


def test_a_gold_corrected_after_the_lock_voids_the_run(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    items, heldout = prompts(method)
    AttemptLog(log).register(method, items, heldout)
    corrected = [Prompt(items[0].number + 1), *items[1:]]
    with pytest.raises(LockError, match="other prompts or golds"):
        AttemptLog(log).register(method, corrected, heldout)


@pytest.mark.parametrize("damage", ["remove", "edit", "garbage"])
def test_a_damaged_log_is_an_error(tmp_path: Path, damage: str) -> None:
    log, method = tmp_path / "log", method_lock()
    for verifier in "123":
        register(log, replaced(method, verifier=verifier))
    lines = log.read_bytes().splitlines(keepends=True)
    if damage == "remove":
        lines = lines[1:]
    elif damage == "edit":
        lines[1] = lines[1].replace(b'"number":2', b'"number":1')
    else:
        lines[1] = b"garbage\n"
    log.write_bytes(b"".join(lines))
    with pytest.raises(LockError, match="line"):
        register(log, replaced(method, verifier="4"))


def test_a_line_cut_short_by_a_crash_is_written_again(tmp_path: Path) -> None:
    log, method = tmp_path / "log", method_lock()
    register(log, method)
    whole = register(log, replaced(method, verifier="2"))
    log.write_bytes(log.read_bytes()[:-10])
    assert len(AttemptLog(log).entries()) == 1
    assert register(log, replaced(method, verifier="2")) == whole
    assert len(AttemptLog(log).entries()) == 2


def _register_one(arguments: tuple[str, str]) -> int:
    log, verifier = arguments
    return register(Path(log), replaced(method_lock(), verifier=verifier)).attempt


def test_runs_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        numbers = pool.map(_register_one, [(str(tmp_path / "log"), str(i)) for i in range(12)], chunksize=1)
    assert sorted(numbers) == list(range(1, 13))
