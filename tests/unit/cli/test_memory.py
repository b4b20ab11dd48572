"""How a trainer's process is prepared: huge pages from its first moment, no garbage hunt while it loads."""

import gc
import json
import os
import subprocess
import sys

import pytest

from fakes.server import eventually
from strop.memory import loading
from strop.service.settings import settings_from_environment
from strop.service.supervisor.trainers import Trainers

TELLS = "import json, os; print(json.dumps({'pid': os.getpid(), 'set': os.environ.get('GLIBC_TUNABLES')}))"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's setting")
@pytest.mark.parametrize("of_the_user", [None, "glibc.malloc.arena_max=2"])
def test_a_server_starts_its_trainers_with_huge_pages_unless_the_user_chose(monkeypatch, of_the_user):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if of_the_user is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", of_the_user)
    trainers = Trainers(settings_from_environment(), [sys.executable, "-c", TELLS])
    trainers.start("job")
    assert eventually(lambda: trainers.take_exit("job") is not None)
    (line,) = trainers.tail("job", lines=1)
    assert json.loads(line)["set"] == (of_the_user or "glibc.malloc.hugetlb=1")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's setting")
def test_a_trainer_started_without_replaces_itself_once_and_stays_the_same_process():
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    code = f"from strop.memory import use_huge_pages; print('begun', flush=True); use_huge_pages(); {TELLS}"
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as child:
        said = child.communicate(timeout=60)[0].decode().split("\n", 2)
    assert said[:2] == ["begun", "begun"]
    assert json.loads(said[2]) == {"pid": child.pid, "set": "glibc.malloc.hugetlb=1"}


def test_nothing_is_collected_while_modules_load_nor_are_they_looked_at_again():
    before = gc.get_freeze_count()
    try:
        with loading():
            assert not gc.isenabled()
            kept = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + 1000
        gc.disable()
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
    assert len(kept) == 1000
