"""How many jobs train at once, by option and environment."""

import pytest

from strop.errors import ConfigError
from strop.service.settings import settings_from_environment


def test_one_job_trains_at_a_time_unless_the_environment_or_an_option_says_otherwise(monkeypatch):
    monkeypatch.delenv("STROP_MAX_RUNNING_JOBS", raising=False)
    assert settings_from_environment().max_running_jobs == 1
    monkeypatch.setenv("STROP_MAX_RUNNING_JOBS", "3")
    assert settings_from_environment().max_running_jobs == 3
    assert settings_from_environment(max_running_jobs=2).max_running_jobs == 2


@pytest.mark.parametrize("found", ["0", "-1", "two", "1.5"])
def test_a_number_of_jobs_that_is_no_whole_number_from_1_on_is_refused(monkeypatch, found):
    monkeypatch.setenv("STROP_MAX_RUNNING_JOBS", found)
    with pytest.raises(ConfigError, match="STROP_MAX_RUNNING_JOBS"):
        settings_from_environment()
