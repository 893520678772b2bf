"""What the command line shows: progress bars, tables, and the same as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from pacbayes.certificate import (
    CertificateError,
    build_joint_certificate,
    find_file,
    read_certificate,
)
from pacbayes.sample import LockError, MethodLock, read_lock
from progressive_rlvr.config import RunConfig, StageName, load_config
from progressive_rlvr.errors import UserError
from progressive_rlvr.labels import POLICIES, Answer
from progressive_rlvr.metrics import Metrics
from progressive_rlvr.pipeline import CONFIG_FILE, Progress
from progressive_rlvr.plan import Plan
from progressive_rlvr.verify import Audit, Options, verify

HELD = (
    "the certificate is consistent with its files (V0)",
    "the certificate is consistent with its files, and its verdicts with its completions (V1)",
    "the certificate is consistent with its files and verdicts, and what was regenerated with its message (V2)",
    "the certificate is what the run gives again (V3)",
)


class Watcher:
    """Progress of all domains of a run: bars on a terminal, a line per new stage elsewhere."""

    def __init__(self, config: RunConfig, last: StageName | None) -> None:
        self.domains = list(config.domains)
        self.console = Console(stderr=True)
        self.seen: dict[str, tuple[str, str]] = {}
        self.bars = Bars(
            TextColumn("{task.fields[domain]:<12}"),
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        self.tasks = {d: self.bars.add_task("waiting", domain=d, total=None, start=False) for d in self.domains}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def update(self, rows: list[Progress]) -> None:
        """Show where every domain is."""
        for row in rows:
            stage = row.stage or "loading"
            if self.seen.get(row.domain) == (row.state, stage) and not self.console.is_terminal:
                continue
            if self.console.is_terminal:
                if row.state != "waiting":
                    self.bars.start_task(self.tasks[row.domain])
                shown = stage if row.state == "running" else row.state
                self.bars.update(self.tasks[row.domain], description=shown, completed=row.done, total=row.total or None)
                if row.state in ("done", "failed"):
                    self.bars.stop_task(self.tasks[row.domain])
            elif row.state != "waiting":
                print(f"{row.domain}: {stage if row.state == 'running' else row.state}", file=sys.stderr, flush=True)
            self.seen[row.domain] = (row.state, stage)


def per_cent(fraction: float | None, places: int = 1) -> str:
    """A fraction as per cent."""
    return "-" if fraction is None else f"{100 * fraction:.{places}f}"


def certificate_table(run_folder: Path) -> None:
    """The closing table of a run, rounded as the report rounds: never in the direction that flatters."""
    from bounds_reports.numbers import Rounding, fixed, points

    def shown(accuracy: float | None, rounding: Rounding = "near") -> str:
        return "-" if accuracy is None else points(Decimal(repr(accuracy)), rounding)

    table = Table(title=f"{run_folder.name}: accuracy in per cent, gap in points")
    for column in ("domain", "base", "LoRA", "coded", "bits", "n", "certified", "gap"):
        table.add_column(column, justify="left" if column == "domain" else "right")
    for path in sorted((run_folder / "certificates").glob("*.json")):
        c = read_certificate(path)
        coded, certified = c.coded.accuracy, c.bound.certified_accuracy
        table.add_row(
            c.domain,
            shown(c.base.accuracy if c.base else None, "up"),
            shown(c.lora.accuracy if c.lora else None),
            shown(coded),
            fixed(Decimal(repr(c.bits.total)), 1, "up"),
            f"{c.n:,}" if c.draws == 1 else f"{c.n:,} × {c.draws}",
            shown(certified, "down"),
            points(Decimal(repr(coded)) - Decimal(repr(certified)), "up"),
        )
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def plan_table(run: str, plan: Plan) -> None:
    """The estimates of one domain; what they take for granted stands below them."""
    table = Table(title=f"{run}, {plan.domain}: estimates for one device")
    for column in ("stage", "completions", "prompt tokens", "new tokens ≤", "PFLOP", "memory, GB", "time, h"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for row in plan.rows:
        table.add_row(
            row.stage,
            f"{row.completions:,}",
            f"{row.prompt_tokens:,}",
            f"{row.new_tokens:,}",
            f"{row.flops / 1e15:,.3g}",
            f"{row.memory / 1e9:,.3g}",
            f"{row.seconds / 3600:,.2g}",
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    device = plan.device
    typer.echo(
        f"{plan.parameters:,} parameters, {plan.student:,} in the student. A prompt has {plan.prompt_tokens:.0f} "
        f"tokens ({plan.prompt_source}), a completion at most {plan.max_new_tokens}. Assumed, not measured: "
        f"{device.tflops:g} TFLOP/s and {device.bandwidth:g} GB/s (--tflops, --bandwidth). Without loading, verifiers, "
        f"what an allocator wastes, and the prior artifact (SVDs: {plan.svd_flops / 1e12:,.3g} TFLOP in float64)."
    )


def label_table(found: Answer) -> None:
    """The designs for spending labels side by side, then the answer and what it takes for granted."""
    from bounds_reports.numbers import fixed, points

    plan, prior = found.plan, found.plan.prior
    rows = [("certify on all", plan.certify_all)]
    if prior.planned:
        rows.append(("prior on a share", prior.planned))
    else:
        rows += [("prior, of no use", prior.unhelpful), ("prior, ideal", prior.ideal)]
    for one in plan.holdouts:
        rows.append((f"{'best ' if one.optimal else ''}hold-out, {POLICIES[one.policy]}", one.chosen))
    table = Table(title=f"{plan.n:,} labels, delta {plan.delta:g}: certified accuracy to be expected, in per cent")
    for column in ("design", "trained on", "counted", "bits", "accuracy", "certified", "9 in 10 ≥"):
        table.add_column(column, justify="left" if column == "design" else "right")
    for name, design in rows:
        table.add_row(
            name,
            f"{design.trained_on:,}",
            f"{design.counted:,}",
            fixed(Decimal(repr(design.bits)), 1, "up"),
            points(Decimal(repr(design.accuracy)), "near") + ("*" if design.assumed else ""),
            points(Decimal(repr(design.expected)), "down"),
            points(Decimal(repr(design.nine_in_ten)), "down"),
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    typer.echo(f"{found.answer}\n\n{found.prior}\n")
    for note in found.notes:
        typer.echo(f"- {note}")


def verify_lines(certificate: Path, level: int, options: Options, as_json: bool) -> Audit:
    """Verify a certificate up to a level and print what was found, as lines or as one JSON object."""
    with Bars(
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=(console := Console(stderr=True)),
        disable=not console.is_terminal,
        transient=True,
    ) as bars:
        task = bars.add_task("V0", total=None)
        audit = verify(
            certificate,
            level,
            options,
            lambda what, done, total: bars.update(task, description=what, completed=done, total=total or None),
        )
    if as_json:
        shown = {
            "ok": audit.ok,
            "level": f"V{audit.level}",
            "checks": [asdict(finding) for finding in audit.findings],
            "refused": audit.refused,
            "not_checked": audit.not_checked,
        }
        typer.echo(json.dumps(shown, indent=1))
        return audit
    for finding in audit.findings:
        prefix = f"V{finding.level} " if finding.level else ""
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {prefix}{finding.name}: {finding.detail}")
    for line in audit.not_checked:
        typer.echo(f"not checked: {line}")
    if audit.refused:
        typer.echo(f"V{audit.level + 1} was not carried out: {audit.refused}")
    if audit.ok:
        typer.echo(HELD[audit.level])
    elif all(finding.ok or finding.level == 3 for finding in audit.findings):
        typer.echo(f"{HELD[2]}; the run again ended otherwise (V3), which by itself says nothing against it")
    else:
        typer.echo("the certificate does NOT hold")
    return audit


def jointly_line(certificates: list[Path]) -> str:
    """Whether certificates hold all at once, as their locks declare, or each with its own confidence."""
    try:
        parts = []
        for path in certificates:
            shown = read_certificate(path)
            parts.append((shown, read_lock(find_file(path, shown.domain, "method.lock.json"), MethodLock)))
        return f"jointly, as locked: {build_joint_certificate(parts).statement}"
    except (CertificateError, LockError) as error:
        return f"NOT jointly: {error}"


def status_table(run_folder: Path, as_json: bool) -> None:
    """Where every domain of a run is.

    Raises:
        UserError: this is no run.
    """
    if not (run_folder / CONFIG_FILE).is_file():
        raise UserError(f"{run_folder} is no run: it has no {CONFIG_FILE}")
    rows: list[dict[str, Any]] = []
    for domain in load_config(run_folder / CONFIG_FILE).domains:
        row = Metrics(run_folder / domain / "metrics.jsonl").last() or {"stage": "not begun", "step": 0, "steps": 0}
        rows.append({"domain": domain, **row})
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table()
    for column in ("domain", "stage", "step", "reward or accuracy"):
        table.add_column(column)
    for row in rows:
        score = row.get("reward", row.get("accuracy"))
        table.add_row(row["domain"], row["stage"], f"{row['step']}/{row['steps']}", per_cent(score))
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def agreement_table(found: dict[str, Any]) -> None:
    """What `prlvr audit engines` found: one line a variant, rates in per cent, margins in nats."""
    oracle = found["oracle"]
    table = Table(
        title=f"{found['run']}, {found['domain']}, {found['policy']}: {found['prompts']} prompts; "
        f"oracle {oracle['variant']}, {oracle['correct']} right"
    )
    table.add_column("variant")
    for name in ("completions", "tokens %", "verdicts %", "right→wrong", "wrong→right", "right", "margin", "largest"):
        table.add_column(name, justify="right")
    for row in found["variants"]:
        margins = (row["margin_median"], row["margin_largest"])
        table.add_row(
            row["variant"],
            str(row["completions_that_differ"]),
            f"{100 * row['token_flip_rate']:.2f}",
            f"{100 * row['verdict_flip_rate']:.2f}",
            str(row["right_to_wrong"]),
            str(row["wrong_to_right"]),
            str(row["correct"]),
            *("" if margin is None else f"{margin:.2g}" for margin in margins),
        )
    Console().print(table)
