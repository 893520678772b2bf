"""`prlvr bound`: what can be said of a checkpoint under the locks of a run that exists.

A message of the run's menu gets a certificate of its own: all policies of one menu are covered at once by the same
sample. A PEFT LoRA adapter is measured as well, but it is not on the menu; written out in bfloat16 it costs 16 bits a
parameter, and the bound at that price, nearly always vacuous, is shown for comparison and is no certificate.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pacbayes.canonical import file_digest
from pacbayes.certificate import build_certificate, write_certificate
from pacbayes.certificate.assembly import certified
from pacbayes.evidence import read_evidence
from progressive_rlvr.certify import CERTIFICATE_FILE, engine_record
from progressive_rlvr.chain import SPLITS, Chain, open_chain
from progressive_rlvr.config import load_config
from progressive_rlvr.decoder import tensors_digest
from progressive_rlvr.engines import Engine
from progressive_rlvr.errors import UserError
from progressive_rlvr.evaluate import EVIDENCE_FILE, Policy, evaluate_split
from progressive_rlvr.pipeline import CONFIG_FILE, only_process
from progressive_rlvr.policies import decode_message, lora_weights
from progressive_rlvr.stages.quantize import MESSAGE_FILE

LOCKS = ("method.lock.json", "sample.lock.json", "pool.json")
BITS_PER_PARAMETER = 16


def bound_checkpoint(checkpoint: Path, run_folder: Path, domain: str) -> dict[str, Any]:
    """Evaluate a message file or an adapter folder on the run's sample and bound its accuracy.

    Returns: a JSON object with `certified_accuracy`, `bits`, `losses`, `n`, `certificate` (its file, or null).

    Raises:
        UserError: no such run, domain or checkpoint, or another kind of adapter.
        CodeError: the file is no message of the run's menu.
    """
    if not (run_folder / CONFIG_FILE).is_file():
        raise UserError(f"{run_folder} is no run: it has no {CONFIG_FILE}")
    config = load_config(run_folder / CONFIG_FILE)
    if domain not in config.domains:
        raise UserError(f"the run {run_folder} has no domain {domain!r}; it has {', '.join(config.domains)}")
    if not checkpoint.exists():
        raise UserError(f"there is no checkpoint {checkpoint}")
    with only_process(run_folder / domain):
        chain = open_chain(config, run_folder, domain)
        try:
            return _bound_adapter(chain, checkpoint) if checkpoint.is_dir() else _bound_message(chain, checkpoint)
        finally:
            chain.domain.close()


def _bound_message(chain: Chain, file: Path) -> dict[str, Any]:
    model = chain.certified_model()
    weights = decode_message(model, chain.menu, file.read_bytes(), chain.prior)
    folder = _folder(chain, file_digest(file))
    for name in LOCKS:
        if (chain.folder / name).exists():
            shutil.copyfile(chain.folder / name, folder / name)
    shutil.copyfile(file, folder / MESSAGE_FILE)
    engine = chain.engine(model)
    evidence = _evaluate(chain, engine, Policy("coded", weights, file_digest(file)), folder)
    certificate = build_certificate(
        method=chain.method,
        sample=chain.sample,
        message=file.read_bytes(),
        evidence=evidence.read_bytes(),
        policy=tensors_digest(weights),
        engine=engine_record(chain, model),
        pool=chain.pool,
    )
    write_certificate(folder / CERTIFICATE_FILE, certificate)
    return {
        "certified_accuracy": certificate.bound.certified_accuracy,
        "bits": certificate.bits.total,
        "losses": certificate.bound.losses,
        "n": certificate.n,
        "certificate": str(folder / CERTIFICATE_FILE),
    }


def _bound_adapter(chain: Chain, adapter: Path) -> dict[str, Any]:
    model = chain.certified_model()
    weights = lora_weights(model, adapter)
    digest = tensors_digest(weights)
    evidence = _evaluate(chain, chain.engine(model), Policy("lora", weights, digest), _folder(chain, digest))
    method = chain.method
    right = read_evidence(evidence).correct_per_prompt("lora", "sample", chain.sample, draws=method.draws)
    bits = float(BITS_PER_PARAMETER * adapter_parameters(adapter))
    return {
        # The bound that the method lock asks for, at a price that is no message's.
        "certified_accuracy": certified(method, right, bits),
        "bits": bits,
        "losses": method.prompts * method.draws - sum(right),
        "n": method.prompts,
        "certificate": None,
    }


def adapter_parameters(adapter: Path) -> int:
    """How many numbers a PEFT adapter holds."""
    from safetensors import safe_open

    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as file:
        return sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118  not a dict


def _folder(chain: Chain, digest: str) -> Path:
    folder = chain.folder / "bounds" / digest[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _evaluate(chain: Chain, engine: Engine, policy: Policy, folder: Path) -> Path:
    path = folder / EVIDENCE_FILE
    with engine.serving(policy.weights):
        for split in SPLITS:
            evaluate_split(chain, engine, policy, split, path)
    return path
