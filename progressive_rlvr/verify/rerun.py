"""Level V3: the whole chain again from its configuration, in a temporary folder, compared byte by byte.

The locks must be the certificate's before anything is trained: the same method and beacon draw the same sample, and the
log of attempts is begun with as many earlier attempts as the sample lock says there were.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pacbayes.canonical import canonical_json, digest, write_atomic
from pacbayes.certificate import CertificateError, read_certificate
from pacbayes.sample import AttemptEntry, MethodLock, SampleLock
from pacbayes.schema import first_difference
from progressive_rlvr.certify import CERTIFICATE_FILE
from progressive_rlvr.chain import open_chain
from progressive_rlvr.config import RunConfig, load_config
from progressive_rlvr.errors import UserError
from progressive_rlvr.pipeline import CONFIG_FILE, prepare_run, run_domains
from progressive_rlvr.pipeline import Progress as Where
from progressive_rlvr.stages.quantize import MESSAGE_FILE
from progressive_rlvr.verify.case import Case, Finding, Options, Progress
from progressive_rlvr.verify.regenerate import PRIOR_FILE

LEVEL = 3
NO_PROOF = (
    "which is no proof of fraud: training repeats bit for bit only on the same kind of processor with the same number "
    "of threads and the same versions"
)


def rerun(case: Case, options: Options, progress: Progress) -> Iterator[Finding]:
    """Run the chain of the certificate's domain again and compare message and certificate.

    Raises:
        UserError: no configuration is at hand, it is not the certificate's, or the run fails.
    """
    path = find_config(case, options)
    config = load_config(path, options.data_dir)
    domain = case.certificate.domain
    if domain not in config.domains:
        raise UserError(f"the configuration {path} is not this certificate's: it has no domain {domain}")
    with tempfile.TemporaryDirectory(prefix="prlvr-verify-") as temporary:
        runs = Path(temporary) / "runs"
        folder = prepare_run(config, runs)
        (folder / domain).mkdir()
        with suppress(CertificateError):  # made again if it is not there; the method lock tells whether it is the same
            shutil.copyfile(case.find(PRIOR_FILE), folder / domain / PRIOR_FILE)
        seed_attempts(runs / "attempts.jsonl", case.method, case.sample)
        yield _check_locks(case, config, folder, path)

        def watch(rows: list[Where]) -> None:
            for row in rows:
                progress(f"V3 {row.stage or 'loading'}", row.done, row.total)

        run_domains(config, folder, None, watch, only=[domain])
        yield from _compare(case, folder / domain)


def find_config(case: Case, options: Options) -> Path:
    """The configuration: in the run's folder if one is given, else beside the certificate or in the folder above.

    Raises:
        UserError: it is in none of them.
    """
    parent = case.path.resolve().parent
    folders = [options.run] if options.run is not None else [parent, parent.parent]
    for folder in folders:
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
    raise UserError(
        f"V3 runs the training again and needs the run's {CONFIG_FILE}; it is not in "
        f"{' or '.join(map(str, folders))}: give the folder that holds it with --run"
    )


def seed_attempts(path: Path, method: MethodLock, sample: SampleLock) -> None:
    """A log of attempts that holds those before this sample; of all but the last only the number is known."""
    previous: str | None = None
    lines = []
    for number in range(1, sample.attempt):
        last = number == sample.attempt - 1
        unknown = digest(["an earlier attempt, of which only the number is known", number])
        entry = AttemptEntry(
            claim=method.claim_key,
            number=number,
            method=unknown,
            beacon=None,
            sample=sample.previous if last and sample.previous is not None else unknown,
            previous=previous,
        )
        lines.append(canonical_json(entry.to_json()) + b"\n")
        previous = entry.sample
    if lines:
        write_atomic(path, b"".join(lines))


def _check_locks(case: Case, config: RunConfig, folder: Path, path: Path) -> Finding:
    chain = open_chain(config, folder, case.certificate.domain)
    for what, found, shown in (
        ("method lock", chain.method, case.method),
        ("sample lock", chain.sample, case.sample),
    ):
        if found.digest != shown.digest:
            where = first_difference(shown.to_json(), found.to_json(), was="is", now="in the certificate's, here") or ""
            raise UserError(f"the configuration {path} does not lead to the certificate's {what}: {where}")
    detail = f"{path} leads to the same method lock and sample lock, attempt {case.sample.attempt}"
    return Finding(LEVEL, "locks", True, detail, {"attempt": case.sample.attempt})


def _compare(case: Case, folder: Path) -> Iterator[Finding]:
    again = (folder / MESSAGE_FILE).read_bytes()
    same = again == case.message
    detail = (
        f"the run ends with the same {len(again)} bytes"
        if same
        else f"the run ends with another message, {digest(again)[:16]}…, {NO_PROOF}"
    )
    yield Finding(LEVEL, "message again", same, detail, {"identical": same, "digest": digest(again)})
    found = folder / CERTIFICATE_FILE
    same = found.read_bytes() == case.path.read_bytes()
    certificate = read_certificate(found)
    measured = {"identical": same, "certified_accuracy": certificate.bound.certified_accuracy}
    if same:
        detail = "the run ends with the same certificate, byte for byte"
    else:
        where = first_difference(
            case.certificate.to_json(), certificate.to_json(), was="is", now="in the certificate, the run again gives"
        )
        detail = f"the run ends with another certificate ({where or 'the same content in another form'}), {NO_PROOF}"
    yield Finding(LEVEL, "certificate again", same, detail, measured)
