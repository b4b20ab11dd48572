"""An instance -> what the container protocol's app serves: a pool of workers in place of one object."""

from __future__ import annotations

import json
from collections.abc import Mapping

from strop.schema.function import FunctionInput, FunctionType
from strop.schema.reply import FunctionReply
from strop.workers.executor import Failure, Outcome
from strop.workers.instance import Instance
from strop.workers.spec import WorkerSpec

_STATUS = {"invalid_input": 422, "busy": 503, "timeout": 504, "unreachable": 502, "worker_lost": 502}


class PooledExecutor:
    """Stands where `Executor` stands in a worker."""

    def __init__(self, instance: Instance, func_type: FunctionType) -> None:
        self._instance = instance
        self.func_type = func_type

    @property
    def spec(self) -> WorkerSpec:
        return self._instance.spec

    @property
    def class_name(self) -> str:
        return self.spec.classpath.replace(":", ".").rpartition(".")[2]

    @property
    def speaks_ark(self) -> bool:
        """A worker of another kind refuses what came of Ark's body."""
        return self.func_type is FunctionType.GROUP_REWARD

    async def run(self, payload: FunctionInput, headers: Mapping[str, str]) -> Outcome:
        """`headers` are the caller's; the instance sends its own."""
        return outcome(await self._instance.call(payload))


def outcome(reply: FunctionReply) -> Outcome:
    """What a container answers: a business failure is an output, everything else has a status of its own."""
    if reply.output is not None and reply.error is None:
        return reply.output.model_dump_json().encode()
    if reply.output is not None:
        values = json.loads(reply.output.model_dump_json())
        return json.dumps(values | {"error": reply.error}, ensure_ascii=False).encode()
    code = reply.error_code or "exception"
    return Failure(http_status=_STATUS.get(code, 500), error_code=code, message=reply.error or "failed")
