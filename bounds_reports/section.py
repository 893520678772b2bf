"""One certificate with what is shown beside it, and the numbers that page, JSON and Markdown have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from bounds_reports.accounting import Account, Accounting
from bounds_reports.load import Metrics, Source, read_merge_audit, read_metrics
from bounds_reports.numbers import apportion, fixed, percent, places, points
from bounds_reports.samples import Specimens, read_specimens
from bounds_reports.schema import Certificate, Ledger, Measured, MergeAudit
from bounds_reports.text import slug, title

BITS, DELTA = (1, 4), (2, 6)  # fewest and most decimals of the ledgers


@dataclass(frozen=True)
class Section:
    """A certificate with everything that is shown beside it."""

    source: Source
    id: str
    name: str
    specimens: Specimens
    metrics: Metrics
    merge_audit: MergeAudit | None = None
    accounting: Accounting | None = None

    @property
    def certificate(self) -> Certificate:
        """What the certificate says."""
        return self.source.certificate


def domain_order(domain: str) -> int:
    """The place of a domain on a page."""
    order = ["mathematics", "programming", "knowledge", "text_to_sql"]
    return order.index(domain) if domain in order else len(order)


def sections_of(sources: list[Source], account: Account | None = None) -> list[Section]:
    """What is shown of each certificate, in the order of the page."""

    def key(source: Source) -> tuple[int, str]:
        return domain_order(source.certificate.domain), source.label

    sections: list[Section] = []
    taken: set[str] = set()
    for source in sorted(sources, key=key):
        domain = source.certificate.domain
        name = title(domain)
        if source.label != domain:
            name += f" · {title(source.label.removeprefix(domain).strip('-_ ') or source.label).lower()}"
        wish = anchor = slug(source.label)
        while anchor in taken:
            anchor += "-" + str(sum(t.startswith(wish) for t in taken) + 1)
        taken.add(anchor)
        specimens, metrics = read_specimens(source.evidence), read_metrics(source.metrics)
        audit = read_merge_audit(source.evidence.parent / "merge-audit.json", source.certificate.digests.get("message"))
        accounting = account(source.path) if account else None
        sections.append(Section(source, anchor, name, specimens, metrics, audit, accounting))
    return sections


def accuracy(name: str, score: Measured | None) -> str:
    """A measured accuracy in print; the base model is never rounded down."""
    return "—" if score is None else percent(score.accuracy, "up" if name == "base" else "near")


def gaps_of(c: Certificate) -> dict[str, Decimal]:
    """The three differences, as fractions; those that cannot be had are absent."""
    gaps = {"coded_minus_certified": c.coded.accuracy - c.certified}
    if c.lora is not None:
        gaps["lora_minus_certified"] = c.lora.accuracy - c.certified
    if c.base is not None:
        gaps["certified_minus_base"] = c.certified - c.base.accuracy
    return gaps


def lora_bits(stages: Sequence[dict[str, Any]]) -> int | None:
    """What the LoRA adapter takes in bfloat16, as the producer's stage `rlvr` wrote it; None if it did not."""
    rlvr: dict[str, Any] = next((stage for stage in stages if stage.get("kind") == "rlvr"), {})
    bits = rlvr.get("bits_bfloat16")
    return bits if isinstance(bits, int) and not isinstance(bits, bool) and bits > 0 else None


def compressibility(c: Certificate) -> Fraction | None:
    """How many times the bits of the LoRA adapter in bfloat16 are those that the message is charged, all lines."""
    bits = lora_bits(c.stages)
    return None if bits is None or c.bits.total == 0 else bits / Fraction(c.bits.total)


def mismatch(section: Section) -> str | None:
    """A warning when the evidence that is shown does not add up to the certificate."""
    c = section.certificate
    if section.specimens.right_in_all != c.coded.correct:
        return (
            f"The evidence holds {section.specimens.right_in_all:,} right answers of the coded policy and the "
            f"certificate counts {c.coded.correct:,f}: this certificate will not pass verification."
        )
    said = c.digests.get("evidence")
    if said is not None and said != section.specimens.digest:
        return "The evidence is not the file that the certificate names: this certificate will not pass verification."
    return None


def ledger_view(ledger: Ledger, decimals: tuple[int, int]) -> dict[str, Any]:
    digits = places([*(line.value for line in ledger.lines), ledger.total], *decimals)
    printed = apportion([line.value for line in ledger.lines], ledger.total, digits)
    if printed is None:
        values = [fixed(line.value, digits, "up") for line in ledger.lines]
        printed = (values, fixed(ledger.total, digits, "up"))
        adds_up = False
    else:
        adds_up = True
    values, total = printed
    rows = [
        {"name": title(line.name), "value": value, "why": line.why}
        for line, value in zip(ledger.lines, values, strict=True)
    ]
    return {"rows": rows, "total": total, "adds_up": adds_up}


def summary_row(section: Section) -> dict[str, Any]:
    c = section.certificate
    gaps = gaps_of(c)
    return {
        "base": accuracy("base", c.base),
        "lora": accuracy("lora", c.lora),
        "coded": accuracy("coded", c.coded),
        "bits": fixed(c.bits.total, 1, "up"),
        "n": f"{c.n:,}",
        "certified": percent(c.certified, "down"),
        "gap": points(gaps["coded_minus_certified"], "up"),
        "gain": points(gaps["certified_minus_base"], "down") if "certified_minus_base" in gaps else "—",
    }
