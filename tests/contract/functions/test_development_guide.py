"""The guide's test inputs give the results that it states, through our worker."""

from __future__ import annotations

import json

import pytest

from fakes.development_guide import INPUTS, OUTPUTS, write_functions
from strop.schema.function import INPUT_OF
from strop.workers.instance import Instance, new_client
from strop.workers.spec import WorkerSpec


async def through_our_worker(root, name, values):
    spec = WorkerSpec(name=name, classpath=f"guide.py:{name}", root=root, timeout_s=20)
    async with new_client() as client:
        instance = Instance(
            spec, job_id="guide", client=client, on_line=lambda *_: None, grace_s=2, start_limit_s=60
        )
        try:
            kind = await instance.start()
            return await instance.call(INPUT_OF[kind].model_validate(values))
        finally:
            await instance.close()


@pytest.mark.parametrize("name", list(INPUTS))
async def test_the_result_is_the_one_that_the_guide_states(tmp_path, name):
    write_functions(tmp_path)
    reply = await through_our_worker(tmp_path, name, INPUTS[name])
    assert reply.ok, reply.error
    assert reply.output is not None
    assert json.loads(reply.output.model_dump_json()) == OUTPUTS[name]
