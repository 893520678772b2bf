"""The keyed noise: golden values, equality of the three implementations, distribution, and traps seen elsewhere."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from pacbayes import gumbel
from pacbayes.gumbel import gumbel_integers, key_words, philox4x32, prompt_key, sample_tokens

ROOT, PROMPT = bytes(range(32)).hex(), bytes(range(32, 64)).hex()
Sampler = Callable[..., np.ndarray]


def _compiled(*arguments: Any) -> np.ndarray:
    module = pytest.importorskip("pacbayes.gumbel_numba", exc_type=ImportError)
    return module.sample_tokens(*arguments)  # type: ignore[no-any-return]


def _torch(logits: np.ndarray, *arguments: Any) -> np.ndarray:
    torch = pytest.importorskip("torch")
    from pacbayes import gumbel_torch

    return gumbel_torch.sample_tokens(torch.from_numpy(logits), *arguments).numpy()


def _torch_operations(logits: np.ndarray, *arguments: Any) -> np.ndarray:
    """What runs on other devices than the CPU."""
    torch = pytest.importorskip("torch")
    from pacbayes import gumbel_torch

    return gumbel_torch._sample_with_tensors(torch.from_numpy(logits), *arguments).numpy()


def _torch_without_numba(logits: np.ndarray, *arguments: Any) -> np.ndarray:
    torch = pytest.importorskip("torch")
    from pacbayes import gumbel_torch

    gumbel_torch._cpu_sampler.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "pacbayes.gumbel_numba", None)  # makes its import fail
            return gumbel_torch.sample_tokens(torch.from_numpy(logits), *arguments).numpy()
    finally:
        gumbel_torch._cpu_sampler.cache_clear()


OTHERS: list[Sampler] = [_compiled, _torch, _torch_operations, _torch_without_numba]
SAMPLERS: list[Sampler] = [sample_tokens, *OTHERS]


def keys_of(count: int, start: int = 0) -> list[bytes]:
    return [prompt_key(ROOT, PROMPT, occurrence, 0) for occurrence in range(start, start + count)]


# --- the specification -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    """Random123's kat_vectors, philox 4x32 with 10 rounds."""
    assert philox4x32(np.array(counter, np.uint32), np.array(key, np.uint32)).tolist() == expected


def _philox_by_the_paper(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 in Python integers, written from the paper alone."""
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * x[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * x[2], 2**32)
        x = [high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return x


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(1, 50))
@settings(max_examples=30)
def test_integers_follow_the_specification(occurrence: int, draw: int, position: int, vocabulary: int) -> None:
    raw = bytes.fromhex(ROOT) + bytes.fromhex(PROMPT) + occurrence.to_bytes(8, "little") + draw.to_bytes(8, "little")
    d = hashlib.sha256(raw).digest()
    words = [int.from_bytes(d[i : i + 4], "little") for i in range(0, 16, 4)]
    expected = [
        _philox_by_the_paper([token >> 2, position, words[2], words[3]], words[:2])[token & 3]
        for token in range(vocabulary)
    ]
    key = prompt_key(ROOT, PROMPT, occurrence, draw)
    assert key == d
    assert gumbel_integers([key], position, vocabulary).tolist() == [expected]


def test_golden_values() -> None:
    """Any change here changes every committed noise: it needs a new name of the specification."""
    first, second = prompt_key("00" * 32, "11" * 32, 0, 0), prompt_key(ROOT, PROMPT, 3, 2)
    assert first.hex() == "1a27f84aac1aa99f4afaa678d6e46dc9f0c51930b0a6479c2b255194f0ab2cbb"
    assert second.hex() == "532dd7d4efec4a7f0d105a9259c3de0330536c2df1c33f11bd8e66e99de2e5d3"
    assert gumbel_integers([first, second], [0, 7], 6).tolist() == [
        [1591971455, 1747318076, 2462023902, 1651410860, 1298850539, 3536487555],
        [2880874584, 1086471836, 1296269887, 4035075195, 1050124698, 2644881897],
    ]
    logits = np.linspace(-3, 3, 1000, dtype=np.float32).reshape(1, -1).repeat(12, 0)
    keys = [prompt_key("00" * 32, "11" * 32, i, 0) for i in range(12)]
    expected = [898, 958, 855, 748, 782, 627, 887, 768, 835, 825, 792, 985]
    for sampler in SAMPLERS:
        assert sampler(logits, keys, 5, 0.7).tolist() == expected


def test_gumbel_is_finite_and_increasing_at_both_ends() -> None:
    """In float32 the largest u rounds to 1, and its g to infinity; with 24-bit uniforms g would end at 16.6."""
    ends = np.array([0, 1, 2, 2**31, 2**32 - 3, 2**32 - 2, 2**32 - 1], np.uint32)
    values = gumbel.gumbel(ends)
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()
    assert values[0] == pytest.approx(-math.log(33 * math.log(2)), rel=1e-12)
    assert values[-1] == pytest.approx(33 * math.log(2), rel=1e-9)
    assert np.float32(1 - 2.0**-33) == 1


@pytest.mark.parametrize(
    ("root", "prompt", "occurrence", "draw"), [("00", PROMPT, 0, 0), (ROOT, PROMPT, -1, 0), (ROOT, PROMPT, 0, 2**64)]
)
def test_keys_of_another_form_are_refused(root: str, prompt: str, occurrence: int, draw: int) -> None:
    with pytest.raises(ValueError, match=r"32 bytes|count from 0"):
        prompt_key(root, prompt, occurrence, draw)


# --- one answer from all implementations -----------------------------------------------------------------


def test_torch_draws_the_same_integers() -> None:
    pytest.importorskip("torch")
    from pacbayes import gumbel_torch

    positions = np.array([0, 1, 2**31, 2**32 - 1, 5])
    expected = gumbel_integers(keys_of(5), positions, 1003)
    found = gumbel_torch.gumbel_integers(keys_of(5), positions.tolist(), 1003).numpy()
    assert (found == expected).all()


@pytest.mark.parametrize("sampler", OTHERS)
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 8.0, 60.0])
@pytest.mark.parametrize("vocabulary", [1, 3, 8, 509, 5000])
def test_all_implementations_choose_the_same_token(sampler: Sampler, scale: float, vocabulary: int) -> None:
    generator = np.random.default_rng(7)
    logits = (scale * generator.standard_normal((40, vocabulary))).astype(np.float32)
    logits[1::4] = np.sort(logits[1::4])  # the best last
    logits[2::4] = np.sort(logits[2::4])[:, ::-1]
    logits[:, generator.random(vocabulary) < 0.2] = -np.inf
    logits[:, 0] = 0.0
    positions = generator.integers(0, 1000, 40)
    for temperature in (0.5, 1.0, 1.7):
        expected = sample_tokens(logits, keys_of(40), positions, temperature)
        assert (sampler(logits, keys_of(40), positions, temperature) == expected).all()


@pytest.mark.parametrize("sampler", OTHERS)
@given(st.integers(0, 2**20), st.sampled_from([0.3, 1.0, 3.0]), st.floats(-30000, 30000, width=32))
@settings(max_examples=25)
def test_all_implementations_agree_on_random_logits(
    sampler: Sampler, seed: int, temperature: float, shift: float
) -> None:
    generator = np.random.default_rng(seed)
    logits = (generator.standard_t(2, (8, 300)) * 3 + shift).astype(np.float32)
    expected = sample_tokens(logits, keys_of(8, seed), seed % 50, temperature)
    assert (sampler(logits, keys_of(8, seed), seed % 50, temperature) == expected).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_equal_scores_go_to_the_lowest_id(sampler: Sampler) -> None:
    """At logits of 1e8 and more the noise drowns in rounding, so many scores are equal."""
    logits = np.full((16, 4000), 1e25, np.float32)
    logits[:, :100] = 0
    assert sampler(logits, keys_of(16), 0, 1.0).tolist() == [100] * 16


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_token_far_below_the_best_can_win(sampler: Sampler) -> None:
    """Token 3851 at position 80 has x = 2^32 - 16, so that g = 19.4: nothing nearer than 23 nats may be skipped."""
    noise = gumbel.gumbel(gumbel_integers(keys_of(1), 80, 4096))[0]
    assert noise[3851] > 19.4
    logits = np.full((1, 4096), -np.inf, np.float32)
    logits[0, 5] = 0.0
    margin = float(noise[3851] - noise[5])
    for difference, expected in ((1e-4, 3851), (-1e-4, 5)):
        logits[0, 3851] = -margin + difference
        assert sampler(logits, keys_of(1), 80, 1.0).tolist() == [expected]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_masked_tokens_are_never_chosen(sampler: Sampler) -> None:
    logits = np.full((64, 200), -np.inf, np.float32)
    logits[:, [17, 150]] = -5
    chosen = sampler(logits, keys_of(64), 3, 1.0)
    assert set(chosen.tolist()) == {17, 150}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    "bad", [[np.nan, 0.0], [math.copysign(math.nan, -1.0), 0.0], [np.inf, 0.0], [-np.inf, -np.inf]]
)
def test_a_row_that_is_no_distribution_is_an_error(sampler: Sampler, bad: list[float]) -> None:
    logits = np.array([[0.0, 0.0], bad], np.float32)
    with pytest.raises(ValueError, match="row 1 of the logits"):
        sampler(logits, keys_of(2), 0, 1.0)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_arguments_of_the_wrong_shape_are_errors(sampler: Sampler) -> None:
    logits = np.zeros((2, 5), np.float32)
    for arguments, message in [
        ((logits, keys_of(3), 0, 1.0), "3 keys for 2 rows"),
        ((logits[0], keys_of(2), 0, 1.0), "shape"),
        ((logits, keys_of(2), [0, 1, 2], 1.0), "one integer position or one per row"),
        ((logits, keys_of(2), -1, 1.0), "positions lie in"),
        ((logits, keys_of(2), 0, 0.0), "temperature"),
        ((logits, keys_of(2), 0, math.nan), "temperature"),
        ((logits, [b"short", b"short"], 0, 1.0), "32 bytes"),
    ]:
        with pytest.raises(ValueError, match=message):
            sampler(*arguments)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_rows_give_no_tokens(sampler: Sampler) -> None:
    assert sampler(np.zeros((0, 5), np.float32), [], 0, 1.0).shape == (0,)


def test_half_precision_is_widened_first() -> None:
    torch = pytest.importorskip("torch")
    from pacbayes import gumbel_torch

    logits = torch.randn(16, 300, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected = sample_tokens(logits.to(torch.float32).numpy(), keys_of(16), 2)
    assert (gumbel_torch.sample_tokens(logits, keys_of(16), torch.full((16,), 2)).numpy() == expected).all()
    assert (gumbel_torch.sample_tokens(logits.requires_grad_(), keys_of(16), 2).numpy() == expected).all()


def test_thresholds_of_the_kernel_are_safe() -> None:
    """For every cell: the largest integer that is skipped has a Gumbel value below the cell by a margin of a third of a
    cell.
    """
    module = pytest.importorskip("pacbayes.gumbel_numba", exc_type=ImportError)
    thresholds = module._THRESHOLDS.astype(np.int64)
    lower_edges = module._LOWEST + np.arange(len(thresholds)) / module._CELLS_PER_NAT
    skipped = np.clip(thresholds - 1, 0, None).astype(np.uint32)
    margin = lower_edges - gumbel.gumbel(skipped)
    assert (margin[thresholds > 0] > 1 / (3 * module._CELLS_PER_NAT)).all()
    assert (np.diff(thresholds) >= 0).all()


# --- what the noise must be --------------------------------------------------------------------------------


def _many_tokens(logits: np.ndarray, count: int, temperature: float = 1.0) -> np.ndarray:
    """Tokens of ``count`` keys, ten positions each."""
    words = np.repeat(key_words(keys_of(count // 10)), 10, axis=0)
    positions = np.tile(np.arange(10), count // 10)
    try:
        from pacbayes.gumbel_numba import sample_tokens as sampler
    except ImportError:
        sampler = sample_tokens
    return sampler(np.broadcast_to(logits.astype(np.float32), (len(words), len(logits))), words, positions, temperature)


def _chi_square_p(observed: np.ndarray, expected: np.ndarray) -> float:
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(special.chdtrc(len(expected) - 1, statistic))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_tokens_follow_the_softmax(temperature: float) -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.5, 0.3, -3.0, 1.7])
    count = 100_000
    observed = np.bincount(_many_tokens(logits, count, temperature), minlength=len(logits))
    assert _chi_square_p(observed, count * special.softmax(logits / temperature)) > 1e-4


def test_rare_tokens_are_as_rare_as_they_should_be() -> None:
    """200 tokens of probability 1e-6 each: in 200,000 draws 40 of them are expected (three float32 bits of tail would
    show).
    """
    logits = np.concatenate([[math.log((1 - 200e-6) / 1e-6)], np.zeros(200)])
    count = 200_000
    rare = int((_many_tokens(logits, count) > 0).sum())
    expected = count * 200e-6
    assert abs(rare - expected) < 4.5 * math.sqrt(expected)


def test_integers_are_uniform_and_independent_across_every_coordinate() -> None:
    """Consecutive seeds of a linear congruential generator give every token the same quantile; these must not."""
    x = gumbel_integers(np.repeat(key_words(keys_of(60)), 8, axis=0), np.tile(np.arange(8), 60), 256)
    u = (x / 2.0**32).reshape(60, 8, 256)
    counts = np.bincount((u.ravel() * 64).astype(int), minlength=64)
    assert _chi_square_p(counts, np.full(64, u.size / 64)) > 1e-4
    for axis in range(3):
        a = np.moveaxis(u, axis, 0)
        correlation = float(np.corrcoef(a[:-1].ravel(), a[1:].ravel())[0, 1])
        assert abs(correlation) < 4.5 / math.sqrt(a[:-1].size)


def test_every_part_of_the_key_matters_and_nothing_else() -> None:
    other = hashlib.sha256(b"other").hexdigest()
    keys = [
        prompt_key(ROOT, PROMPT, 0, 0),
        prompt_key(other, PROMPT, 0, 0),
        prompt_key(ROOT, other, 0, 0),
        prompt_key(ROOT, PROMPT, 1, 0),
        prompt_key(ROOT, PROMPT, 0, 1),
    ]
    x = gumbel_integers(keys, 0, 1000)
    for i in range(len(keys)):
        for j in range(i):
            assert (x[i] == x[j]).mean() < 0.01
    assert (gumbel_integers(keys[:1], 1, 1000) == x[0]).mean() < 0.01


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_place_in_the_batch_does_not_matter(sampler: Sampler) -> None:
    """Noise keyed by batch row, or one seed copied to all rows of a request, would fail here."""
    generator = np.random.default_rng(3)
    logits = generator.standard_normal((32, 400)).astype(np.float32)
    keys, positions = keys_of(32), np.arange(32)
    together = sampler(logits, keys, positions, 1.0)
    order = generator.permutation(32)
    assert (sampler(logits[order], [keys[i] for i in order], positions[order], 1.0) == together[order]).all()
    alone = [int(sampler(logits[i : i + 1], keys[i : i + 1], int(positions[i]), 1.0)[0]) for i in range(32)]
    assert alone == together.tolist()
    same_logits = sampler(np.zeros((32, 400), np.float32), keys, 0, 1.0)
    assert len(set(same_logits.tolist())) > 25


def test_a_larger_vocabulary_keeps_the_noise_of_the_smaller() -> None:
    assert (gumbel_integers(keys_of(2), 0, 500)[:, :100] == gumbel_integers(keys_of(2), 0, 100)).all()


def _imports(statement: str) -> Sequence[str]:
    code = f"{statement}; import sys; print(' '.join(sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_neither_torch_nor_numba_is_imported_unasked() -> None:
    loaded = _imports("import pacbayes, pacbayes.gumbel, pacbayes.sample, pacbayes.evidence, pacbayes.certificate")
    assert not {"torch", "numba", "scipy.stats", "scipy.optimize"} & set(loaded)
