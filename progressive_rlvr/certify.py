"""The last step of a chain: evaluate every policy, count, and write the certificate beside its files."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from transformers import PreTrainedModel

from pacbayes.canonical import file_digest, write_atomic
from pacbayes.certificate import Engine, build_certificate, write_certificate
from progressive_rlvr.chain import Chain
from progressive_rlvr.decoder import tensors_digest
from progressive_rlvr.engines import engine_versions
from progressive_rlvr.evaluate import evaluate
from progressive_rlvr.policies import decode_message
from progressive_rlvr.stages import StageResult
from progressive_rlvr.stages.quantize import MESSAGE_FILE

CERTIFICATE_FILE = "certificate.json"
NAMED_VERSIONS = ("torch", "transformers", "peft", "trl", "progressive-rlvr")
QUANTIZER = "bitsandbytes"


def engine_record(chain: Chain, model: PreTrainedModel) -> Engine:
    """What generated the completions: as locked, and on which device and versions."""
    locked = chain.method.generation
    return Engine(
        name=locked.engine,
        dtype=locked.dtype,
        batch_size=locked.batch_size,
        device=model.device.type,
        versions={name: version(name) for name in (*NAMED_VERSIONS, *([QUANTIZER] if chain.base.quantized else []))}
        | engine_versions(locked.engine),
    )


def certify(chain: Chain, stages: list[StageResult]) -> Path:
    """Evaluate, build and write the certificate; returns its file."""
    message = chain.folder / MESSAGE_FILE
    write_atomic(message, (stages[-1].folder / MESSAGE_FILE).read_bytes())
    evidence = evaluate(chain, stages)
    model = chain.certified_model()
    weights = decode_message(model, chain.menu, message.read_bytes(), chain.prior)
    certificate = build_certificate(
        method=chain.method,
        sample=chain.sample,
        message=message.read_bytes(),
        evidence=evidence.read_bytes(),
        policy=tensors_digest(weights),
        engine=engine_record(chain, model),
        stages=[{"kind": "base", **chain.base.facts(chain.domain.name)}]
        + [{"kind": s.kind, "done": file_digest(s.folder / "done.json"), **s.summary} for s in stages],
        pool=chain.pool,
    )
    path = chain.folder / CERTIFICATE_FILE
    write_certificate(path, certificate)
    return path
