"""Published certificates of several training seeds, with numbers chosen by hand; their evidence is never read."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from report_run import POLICIES, certificate, outcomes, sha, write_certificate

ROWS = outcomes("mathematics", 20, 10, Random(0))
N = 1000


def write_seed(
    folder: Path,
    name: str,
    *,
    domain: str = "mathematics",
    base: str = "pocket",
    right: dict[str, int] | None = None,
    certified: float = 0.8,
    bits: float = 50.0,
    lora_bits: object = 1_310_720,
    locks: str = "one",
    **changes: Any,
) -> Path:
    """`<folder>/<name>.json`; `right` answers of N by policy, `locks` names the pair of locks."""
    made = certificate(domain, ROWS, vector_bits=1.0, length=4)
    right = {"base": 500, "lora": 960, "coded": 940} if right is None else right
    for policy in POLICIES:
        made.pop(policy)
        if policy in right:
            made[policy] = {"accuracy": right[policy] / N, "correct": right[policy], "n": N, "heldout": None}
    made |= {"n": N, "model": {"name": base, "digest": sha(base)}}
    made["bound"] |= {"losses": N - right["coded"], "n": N, "certified_accuracy": certified}
    made["bits"] = {"total": bits, "lines": [{"name": "vector", "value": bits, "why": "by hand"}]}
    made["stages"][0]["bits_bfloat16"] = lora_bits
    made["digests"] |= {"method_lock": sha(f"method {domain} {locks}"), "sample_lock": sha(f"sample {domain} {locks}")}
    made["digests"]["message"] = sha(f"{base} {domain} {name}")
    made |= changes
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "evidence.parquet").write_bytes(b"is there")
    write_certificate(folder / f"{name}.json", made)
    return folder / f"{name}.json"
