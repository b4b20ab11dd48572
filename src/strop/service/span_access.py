"""Who may send spans: a token that opens nothing else, made of a job's id and the server's secret.

Function workers on this machine get one each; it is stored nowhere. The trainer makes the same from the
secret in the home that it shares with the server.
"""

from __future__ import annotations

from strop.service.secret import Signer

_PURPOSE = "spans"
_MARK = "job-spans"


def job_token(signer: Signer, job_id: str) -> str:
    """What a function of the job sends as bearer to `/v1/traces`."""
    return f"{_MARK}.{job_id}.{signer.token(_PURPOSE, job_id)}"


def job_of_token(signer: Signer, token: str) -> str | None:
    """The job that a token is for; None where it is no such token or not ours."""
    mark, _, rest = token.partition(".")
    job_id, _, signature = rest.rpartition(".")
    if mark != _MARK or not signer.holds(signature, _PURPOSE, job_id):
        return None
    return job_id


def is_job_token(token: str) -> bool:
    """Whether it claims to be one."""
    return token.startswith(f"{_MARK}.")
