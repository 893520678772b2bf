"""Many certificates side by side: training seeds of one claim together, with their medians and what holds jointly.

Every figure is rounded against us, medians too: they are taken of exact fractions and rounded afterwards. What we
compare with (base, LoRA) goes up, what we have (the other policies, certified, hold-out equivalent, factors) down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from bounds_reports import holdout
from bounds_reports.accounting import KINDS, Account, Accounting, Charge
from bounds_reports.errors import ReportError
from bounds_reports.load import Source, find_sources, is_certificate, read_source
from bounds_reports.numbers import Rounding, fixed, percent, points, probability
from bounds_reports.schema import Certificate, Measured
from bounds_reports.section import compressibility, domain_order
from bounds_reports.text import clip, title, visible

DASH = "—"
_SEED = re.compile(r"(?:^|[-_])seed[-_]?(\d+)$")


@dataclass(frozen=True)
class Column:
    """A quantity of the comparison: how it is read off a certificate, and how it is printed."""

    key: str
    name: str
    of: Callable[[Certificate], Fraction | None]
    rounding: Rounding
    print: Callable[[Fraction, Rounding], str]


def _accuracy(score: Measured | None) -> Fraction | None:
    """From the counts, which are exact where the quotient in the file is not."""
    return None if score is None else Fraction(score.correct) / score.n


def _above(score: Measured | None, c: Certificate) -> Fraction | None:
    """How far a policy lies above what is certified."""
    accuracy = _accuracy(score)
    return None if accuracy is None else accuracy - Fraction(c.certified)


def _gain(c: Certificate) -> Fraction | None:
    below = _above(c.base, c)
    return None if below is None else -below


def _kept(c: Certificate) -> Fraction | None:
    coded, lora = _accuracy(c.coded), _accuracy(c.lora)
    return coded / lora if coded is not None and lora else None


def _equivalent(c: Certificate) -> Fraction | None:
    if c.development:
        return None
    labels = holdout.labels_for(float(c.certified), float(c.coded.accuracy), float(c.risk))
    return None if labels is None else Fraction(labels)


def _whole(value: Fraction, rounding: Rounding) -> str:
    return fixed(value, 0, rounding)


def _times(value: Fraction, rounding: Rounding) -> str:
    return f"{fixed(value, 0, rounding)} ×"


def _bits(value: Fraction, rounding: Rounding) -> str:
    return fixed(value, 1, rounding)


COLUMNS = (
    Column("base", "base", lambda c: _accuracy(c.base), "up", percent),
    Column("lora", "LoRA", lambda c: _accuracy(c.lora), "up", percent),
    Column("distilled", "distilled", lambda c: _accuracy(c.distilled), "down", percent),
    Column("tinylora", "TinyLoRA", lambda c: _accuracy(c.tinylora), "down", percent),
    Column("coded", "coded", lambda c: _accuracy(c.coded), "down", percent),
    Column("certified", "certified", lambda c: Fraction(c.certified), "down", percent),
    Column("bits", "bits", lambda c: Fraction(c.bits.total), "up", _bits),
    Column("n", "n", lambda c: Fraction(c.n), "down", _whole),
    Column("coded_minus_certified", "coded − certified", lambda c: _above(c.coded, c), "up", points),
    Column("lora_minus_certified", "LoRA − certified", lambda c: _above(c.lora, c), "up", points),
    Column("certified_minus_base", "certified − base", _gain, "down", points),
    Column("coded_to_lora", "coded / LoRA", _kept, "down", percent),
    Column("holdout_equivalent", "hold-out equivalent", _equivalent, "down", _whole),
    Column("compressibility", "compressibility", compressibility, "down", _times),
)


@dataclass(frozen=True)
class Row:
    """One certificate: its values by column, None where it has none."""

    source: Source
    label: str
    seed: int | None
    values: dict[str, Fraction | None]
    accounting: Accounting | None

    @property
    def certificate(self) -> Certificate:
        """What the certificate says."""
        return self.source.certificate


@dataclass(frozen=True)
class Group:
    """Certificates of one claim: base, domain, population, design, n, draws and δ are the same."""

    id: str
    base: str
    name: str
    rows: tuple[Row, ...]
    median: dict[str, Fraction | None]

    @property
    def first(self) -> Certificate:
        """Whatever all of them say alike can be read off this one."""
        return self.rows[0].certificate

    @property
    def locks(self) -> set[tuple[str, str]]:
        """The pairs of locks that occur."""
        return {locks_of(row.certificate) for row in self.rows}


def sources_of(paths: Sequence[Path]) -> list[Source]:
    """The certificates in files, runs, folders of certificates, and folders of such; each file once.

    Raises:
        ReportError: a path does not exist or holds no certificate, or one cannot be read.
    """
    found: dict[Path, Source] = {}
    for path in paths:
        for source in _sources_at(path):
            found.setdefault(source.path.resolve(), source)
    return list(found.values())


def _sources_at(path: Path) -> list[Source]:
    if path.is_file():
        return [read_source(path)]
    if not path.is_dir():
        raise ReportError("no such certificate or folder", path, "pass certificates, runs, or folders of them")
    if _holds_certificates(path):
        return find_sources(path)
    inside = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _holds_certificates(folder)]
    if not inside:
        raise ReportError("no certificate found", path, "pass certificates, runs, or folders of them")
    return [source for folder in inside for source in find_sources(folder)]


def _holds_certificates(folder: Path) -> bool:
    return any(folder.glob("*/certificate.json")) or any(map(is_certificate, sorted(folder.glob("*.json"))))


def median(values: Sequence[Fraction | None]) -> Fraction | None:
    """The middle one, or the mean of the two in the middle; None where a value is missing."""
    known = sorted(value for value in values if value is not None)
    if not known or len(known) < len(values):
        return None
    half = len(known) // 2
    return known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2


def locks_of(c: Certificate) -> tuple[str, str]:
    """The digests of both locks; of a certificate without them, its message, so that it is alone."""
    method, sample = c.digests.get("method_lock"), c.digests.get("sample_lock")
    return (str(method), str(sample)) if method and sample else ("", c.message.hex)


def groups_of(sources: Sequence[Source], account: Account | None = None) -> list[Group]:
    """Certificates by base model and claim, the medians over each.

    Raises:
        ReportError: two base models go by one name.
    """
    _check_bases([source.certificate for source in sources])
    claims: dict[tuple[object, ...], list[Row]] = {}
    for source in sources:
        c = source.certificate
        key = (_base(c), c.domain, str(c.population), c.design, c.n, c.draws, c.risk, c.purpose)
        claims.setdefault(key, []).append(_row(source, account))
    order = sorted(claims.items(), key=lambda item: (item[0][0], domain_order(str(item[0][1])), *map(str, item[0][1:])))
    groups = []
    for i, (_, rows) in enumerate(order):
        rows.sort(key=lambda row: (row.seed is None, row.seed or 0, row.label))
        middle = {column.key: median([row.values[column.key] for row in rows]) for column in COLUMNS}
        c = rows[0].certificate
        groups.append(Group(f"claim-{i + 1}", _base(c), _name(c, claims), tuple(rows), middle))
    return groups


def _name(c: Certificate, claims: Iterable[tuple[object, ...]]) -> str:
    """The domain, with as much beside it as tells its claim from others on the page."""
    name = title(c.domain)
    of_domain = [claim[2] for claim in claims if claim[:2] == (_base(c), c.domain)]
    if len(set(of_domain)) > 1:
        name += f", {clip(population(c), 40)[0]}"
    if of_domain.count(str(c.population)) > 1:
        name += f", n = {c.n:,}" + (f" × {c.draws}" if c.draws > 1 else "")
    return f"{name}, development" if c.development else name


def population(c: Certificate) -> str:
    """What the producer called the prompts; empty where it did not."""
    named = c.population.get("name", "") if isinstance(c.population, dict) else c.population
    return clip(visible(str(named)), 80)[0]


def _base(c: Certificate) -> str:
    return str(c.model.get("name", "unnamed"))


def _check_bases(certificates: Sequence[Certificate]) -> None:
    digests: dict[str, str] = {}
    for c in certificates:
        found = str(c.model.get("digest", ""))
        known = digests.setdefault(_base(c), found)
        if known != found:
            raise ReportError(
                f"two base models are called {visible(_base(c))!r:.80}",
                f"weights {visible(known)[:12]}… and {visible(found)[:12]}…",
                "compare certificates of one of them",
            )


def _row(source: Source, account: Account | None) -> Row:
    c = source.certificate
    places = [source.path.stem, source.path.parent.parent.name]  # <domain>-seed1.json, <run>-seed1/<domain>/…
    seeds = [match for match in map(_SEED.search, places) if match]
    seed = int(seeds[0][1]) if seeds and len(seeds[0][1]) < 10 else None
    label = f"seed {seed}" if seed is not None else source.path.stem
    if seed is None and label in ("certificate", c.domain):
        label = places[1] if label == "certificate" else source.path.parent.name
    values = {column.key: column.of(c) for column in COLUMNS}
    return Row(source, label, seed, values, account(source.path) if account else None)


def median_accounting(group: Group) -> Accounting | None:
    """The medians of the accountings, of kinds and bounds that all certificates have; None where nobody asked."""
    known = [row.accounting for row in group.rows if row.accounting is not None]
    if not known:
        return None
    named = [(row.label, row.accounting.missing) for row in group.rows if row.accounting is not None]
    if gone := [f"{label}: {missing}" for label, missing in named if missing]:
        return Accounting("", (), missing="; ".join(gone))
    charges = []
    for kind in KINDS:
        same = [charge for accounting in known for charge in accounting.charges if charge.kind == kind]
        bits = median([Fraction(charge.bits) for charge in same])
        if bits is None or len(same) < len(group.rows):
            continue
        certified = {}
        for bound in same[0].certified:
            values = [charge.certified.get(bound) for charge in same]
            middle = median([None if value is None else Fraction(value) for value in values])
            if middle is not None:
                certified[bound] = middle
        charges.append(Charge(kind, bits, certified))
    names = {accounting.bound for accounting in known}
    return Accounting(names.pop() if len(names) == 1 else "", tuple(charges), scope=known[0].scope)


def shown(column: Column, value: Fraction | None) -> str:
    """A value in print, or a dash."""
    return DASH if value is None else column.print(value, column.rounding)


def jointly(group: Group) -> str:
    """Whether the certificates of a group hold together, and why."""
    c, count = group.first, len(group.rows)
    if c.development:
        return "Development: nothing is certified."
    sure = probability(c.risk)
    if count == 1:
        return f"One certificate; it holds with probability at least {sure}."
    if len(group.locks) == 1:
        return (
            f"One method lock and one sample lock under all {count}: the bound covers every message of the menu at "
            f"once, so that they hold together with probability at least {sure}, at no cost."
        )
    return (
        f"Not jointly valid at {sure}: the {count} certificates stand under {len(group.locks)} pairs of locks. "
        f"Each holds by itself; {_union(group.rows)}."
    )


def all_jointly(groups: Sequence[Group]) -> str:
    """The whole page by the union bound: a pair of locks fails once, whatever the number of its messages."""
    rows = [row for group in groups for row in group.rows if not row.certificate.development]
    return f"Of the whole page: {_union(rows)}." if rows else "Nothing on this page is certified."


def _union(rows: Sequence[Row]) -> str:
    # A pair of locks has one share of δ; should two certificates differ about it, the larger one counts.
    risks: dict[tuple[str, str], Fraction] = {}
    for row in rows:
        key = locks_of(row.certificate)
        risks[key] = max(risks.get(key, Fraction(0)), Fraction(row.certificate.risk))
    total = sum(risks.values(), Fraction(0))
    if total >= 1:
        return "together they promise nothing"
    pairs = "1 pair of locks" if len(risks) == 1 else f"{len(risks)} pairs of locks"
    return f"by the union bound over {pairs} all hold together with probability at least {probability(total)}"
