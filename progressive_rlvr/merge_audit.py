"""`prlvr audit merge`: what merging the message into the quantized weights does to the certified policy.

The certificate of a quantized base is about its weights with the update beside them. Who merges instead, to serve one
matrix, must round the sum to 8 or 4 bits again, and that is another policy. The audit answers the sample's prompts with
both, under the same noise, and writes `merge-audit.json`. It certifies nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import PreTrainedModel

from domains.base import Item, Verdict
from pacbayes.canonical import write_atomic
from pacbayes.evidence import read_evidence
from progressive_rlvr.chain import Chain, open_chain
from progressive_rlvr.config import load_config
from progressive_rlvr.engines import Completion, Request
from progressive_rlvr.errors import UserError
from progressive_rlvr.evaluate import EVIDENCE_FILE
from progressive_rlvr.models import replaced
from progressive_rlvr.pipeline import CONFIG_FILE, only_process
from progressive_rlvr.policies import decode_message
from progressive_rlvr.quantized import DOWN, UP, keep_precision
from progressive_rlvr.stages.quantize import MESSAGE_FILE

AUDIT_FILE = "merge-audit.json"
SCHEMA = "prlvr/merge-audit/1"
COMPARED_BY_LOGITS = 100  # prompts


def audit_merge(run_folder: Path, domain: str, prompts: int) -> dict[str, Any]:
    """Compare the certified policy of a quantized base with its merged twin on the first `prompts` of the sample.

    Returns: what `merge-audit.json` says. Divergences are in nats, over the positions of the certified policy's own
    completions; shares are fractions.

    Raises:
        UserError: no such run or domain, no message yet, or the base is not quantized.
    """
    if not (run_folder / CONFIG_FILE).is_file():
        raise UserError(f"{run_folder} is no run: it has no {CONFIG_FILE}")
    config = load_config(run_folder / CONFIG_FILE)
    if domain not in config.domains:
        raise UserError(f"the run {run_folder} has no domain {domain!r}; it has {', '.join(config.domains)}")
    if config.base.quantization == "none":
        raise UserError(f"the base of {run_folder} is not quantized: its policies are merged exactly")
    message = run_folder / domain / MESSAGE_FILE
    if not message.is_file():
        raise UserError(f"{message} is not there yet: finish the run first")
    with only_process(run_folder / domain):
        chain = open_chain(config, run_folder, domain)
        try:
            report = _audit(chain, message.read_bytes(), min(prompts, chain.method.prompts))
        finally:
            chain.domain.close()
    write_atomic(chain.folder / AUDIT_FILE, json.dumps(report, indent=1).encode() + b"\n")
    return report


def _audit(chain: Chain, message: bytes, prompts: int) -> dict[str, Any]:
    requests, items = chain.requests("sample")[:prompts], chain.items["sample"][:prompts]
    model = chain.certified_model()
    update = decode_message(model, chain.menu, message, chain.prior)
    engine = chain.engine(model)
    with engine.serving(update):
        before = engine.generate(requests, chain.settings)
    merged = merge(chain.certified_model(), update)
    after = chain.engine(merged).generate(requests, chain.settings)
    verdicts = [_judge(chain, completions, items) for completions in (before, after)]
    pairs = [(a.correct, b.correct) for a, b in zip(*verdicts, strict=True)]
    with replaced(model, update):
        logits = compare_logits(chain, model, merged, requests, before)
    return {
        "schema": SCHEMA,
        "domain": chain.domain.name,
        "message": _digest_of_coded(chain),
        "quantization": chain.config.base.quantization,
        "prompts": prompts,
        "logits": logits,
        "completions": {
            "changed": sum(a != b for a, b in zip(before, after, strict=True)),
            "as_in_the_evidence": _as_in_the_evidence(chain, before),
        },
        "verdicts": {
            "right_before": sum(a for a, _ in pairs),
            "right_after": sum(b for _, b in pairs),
            "right_to_wrong": sum(a and not b for a, b in pairs),
            "wrong_to_right": sum(b and not a for a, b in pairs),
        },
    }


def merge(model: PreTrainedModel, update: Mapping[str, Tensor]) -> PreTrainedModel:
    """The model with the update merged into its packed weights, which are rounded anew: by `peft`, as one would do it.

    update: `<module>.down` (r, in) and `<module>.up` (out, r). The model is used up.
    """
    names = [key.removesuffix(DOWN) for key in update if key.endswith(DOWN)]
    r = len(update[names[0] + DOWN])
    tuned = get_peft_model(model, LoraConfig(r=r, lora_alpha=r, target_modules=names, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name in names:
            layer = tuned.base_model.model.get_submodule(name)
            layer.lora_A["default"].weight.copy_(update[name + DOWN])
            layer.lora_B["default"].weight.copy_(update[name + UP])
    merged: PreTrainedModel = tuned.merge_and_unload().eval()
    keep_precision(merged)
    return merged


@torch.inference_mode()
def compare_logits(
    chain: Chain, before: PreTrainedModel, after: PreTrainedModel, requests: list[Request], answers: list[Completion]
) -> dict[str, float | int]:
    """Next-token distributions of two models, position by position of given completions (at the locked temperature)."""
    divergences, differences, same, positions = [], [], 0, 0
    for request, answer in list(zip(requests, answers, strict=True))[:COMPARED_BY_LOGITS]:
        prompt = len(chain.tokenizer(request.prompt)["input_ids"])
        ids = torch.tensor([chain.tokenizer(request.prompt + answer.text)["input_ids"]], device=before.device)
        scores = [model(input_ids=ids).logits[0, prompt - 1 :].double() for model in (before, after)]
        p, q = (torch.log_softmax(s / chain.settings.temperature, dim=-1) for s in scores)
        divergences.append((p.exp() * (p - q)).sum(dim=-1))
        differences.append((scores[0] - scores[1]).abs().amax(dim=-1))
        same += int((scores[0].argmax(dim=-1) == scores[1].argmax(dim=-1)).sum())
        positions += len(p)
    divergence, difference = torch.cat(divergences), torch.cat(differences)
    return {
        "positions": positions,
        "mean_divergence": float(divergence.mean()),
        "largest_divergence": float(divergence.max()),
        "mean_largest_difference": float(difference.mean()),
        "same_argmax": same / positions,
    }


def _judge(chain: Chain, completions: list[Completion], items: list[Item]) -> list[Verdict]:
    return [chain.judge(c.text, c.truncated, item) for c, item in zip(completions, items, strict=True)]


def _digest_of_coded(chain: Chain) -> str | None:
    evidence = chain.folder / EVIDENCE_FILE
    return read_evidence(evidence).policies.get("coded") if evidence.exists() else None


def _as_in_the_evidence(chain: Chain, completions: list[Completion]) -> int | None:
    """How many of the completions are, byte for byte, those that were certified; None before they were."""
    file = chain.folder / EVIDENCE_FILE
    if not file.exists():
        return None
    stored = read_evidence(file).outcomes
    found = [stored.get(("coded", "sample", i, 0)) for i in range(len(completions))]
    return sum(o is not None and o.completion == c.text for o, c in zip(found, completions, strict=True))
