"""`strop functions show`: the three layers of weights of a job, as its workers use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strop.cli.functions import app

REWARD = """
from strop import *

@reward_func("safety")
class Safety(AbstractRewardProcessor):
    @sub_reward_func("clean", sub_weight=0.7)
    def clean(self, input):
        return 1.0

    @sub_reward_func("polite", sub_weight=0.3)
    def polite(self, input):
        return 0.5

class Ranks(AbstractGroupRewardProcessor):
    def process(self, input):
        return {}
"""

JOB = """
model: smollm2-135m
datasets: [{file_name: train.jsonl}]
training: {hyper_parameters: {batch_size: 4}}
functions:
  - type: reward
    name: safety
    weight: 0.5
    reward_metric_weight: {clean: 1, polite: 4}
    fcmodel: {classpath: reward.py:Safety}
  - {type: group_reward, name: ranks, weight: 2, fcmodel: {classpath: reward.py:Ranks}}
  - {preset: exact_match, weight: 0.25}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n' * 4)
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def shown(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["show", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_a_job_shows_what_every_part_counts(folder: Path) -> None:
    code, out, _ = shown(folder / "job.yaml", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["formula"] == "reward = sum(weight x share x score)"
    # 0.7 * 1 and 0.3 * 4, of 1.9 together
    assert [
        (one["function"], one["part"], pytest.approx(one["share"]), one["product"]) for one in told["parts"]
    ] == [
        ("safety", "clean", 0.7 / 1.9, pytest.approx(0.35 / 1.9)),
        ("safety", "polite", 1.2 / 1.9, pytest.approx(0.6 / 1.9)),
        ("ranks", "", 1.0, 2.0),
        ("exact_match", "", 1.0, 0.25),
    ]


def test_a_class_shows_its_parts_and_a_wrong_weight_its_nearest(folder: Path) -> None:
    code, out, _ = shown("reward.py:Safety", "--root", folder)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[1:3] == [["Safety", "clean", "1", "0.7", "0.7"], ["Safety", "polite", "1", "0.3", "0.3"]]
    assert shown("reward.py:Ranks", "--root", folder)[0] == 0
    (folder / "job.yaml").write_text(JOB.replace("clean: 1", "cleen: 1"))
    code, _, told = shown(folder / "job.yaml")
    assert code == 1
    assert "Safety has no part 'cleen'" in told
    assert "did you mean 'clean'?" in told
