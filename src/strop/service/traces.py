"""Spans that come in: who may send them, and which of a batch belong to jobs that the sender may write to.

Who may write: a job's token (its function workers have one), an API key (spans then name a job of its
workspace), and an instance's trigger token.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from strop.errors import AccessError, MissingError
from strop.locales import msg
from strop.schema.span import JOB_ID, Span
from strop.service.secret import Signer
from strop.service.span_access import is_job_token, job_of_token
from strop.store.database import Database
from strop.store.entities import get_instance
from strop.store.jobs import get_job
from strop.store.keys import caller_of
from strop.store.spans import record_spans

MAX_AT_ONCE = 8
"""Batches being stored at the same time; each holds its body in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sends spans: for one job, or for any job of a workspace."""

    workspace_id: str | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSpan:
    """A span, and the job that it or its resource names."""

    span: Span
    job_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a batch: how many spans were stored, how many rejected and why. `new` says of each span
    whether it was stored just now, and not before."""

    stored: int
    rejected: int
    why: str
    new: Sequence[bool]


def sender_with(database: Database, signer: Signer, token: str) -> Sender:
    """Who sends with this token or API key.

    Raises:
        AccessError: it is neither.
    """
    if is_job_token(token):
        job_id = job_of_token(signer, token)
        if job_id is None:
            raise AccessError(msg("this job token is not one of this server"))
        return Sender(job_id=job_id)
    if not token:
        raise AccessError(
            msg("no token was sent with the spans"),
            fix=msg(
                "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20KEY with an API key of this server"
            ),
        )
    with database.read() as session:
        return Sender(workspace_id=caller_of(session, token).workspace_id)


def sender_of_instance(database: Database, instance_id: str) -> Sender:
    """Raises MissingError: no such instance."""
    with database.read() as session:
        return Sender(workspace_id=get_instance(session, instance_id).workspace_id)


def store(database: Database, sender: Sender, spans: Sequence[NamedSpan]) -> Stored:
    """Write those spans of a batch that belong to jobs which the sender may write to."""
    new = [False] * len(spans)
    of_jobs: defaultdict[str, dict[int, Span]] = defaultdict(dict)
    refused: Counter[str] = Counter()
    for place, one in enumerate(spans):
        job_id = sender.job_id or one.job_id
        if job_id is None:
            refused[f"a span names no job: set the attribute {JOB_ID}"] += 1
        elif len(one.span.trace_id) != 32 or len(one.span.span_id) != 16:
            refused["a span without a trace id of 16 bytes and a span id of 8"] += 1
        else:
            of_jobs[job_id][place] = one.span
    stored = 0
    with database.write() as session:
        for job_id, found in of_jobs.items():
            if _writable(session, job_id, sender):
                written = record_spans(session, job_id, list(found.values()))
                stored += len(found)
                for place, span in found.items():
                    new[place] = (span.trace_id, span.span_id) in written
            else:
                refused[f"no job {job_id!r} that this token may write to"] += len(found)
    why = "; ".join(f"{count} x {reason}" for reason, count in refused.most_common(3))
    return Stored(stored=stored, rejected=refused.total(), why=why, new=new)


def _writable(session: Session, job_id: str, sender: Sender) -> bool:
    try:
        get_job(session, job_id, workspace_id=sender.workspace_id)
    except MissingError:
        return False
    return True
