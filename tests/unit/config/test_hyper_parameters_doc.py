"""The page of hyper-parameters says what the schema says."""

from pathlib import Path

from strop.config.hyper_parameter_texts import CHINESE, about
from strop.config.hyper_parameters_doc import render
from strop.config.job import HyperParameters

PAGE = Path(__file__).parents[3] / "docs" / "hyper_parameters.md"


def test_every_hyper_parameter_has_its_texts_in_both_languages():
    assert set(CHINESE) == set(HyperParameters.model_fields)
    for name in HyperParameters.model_fields:
        english, chinese = about(name)
        assert english.endswith("."), name
        assert chinese.endswith("。"), name
        assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese), name


def test_the_page_says_what_the_schema_says():
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m strop.config.hyper_parameters_doc"


def test_a_row_tells_range_default_and_trainings():
    lines = {line.split("`")[1]: line for line in render().splitlines() if line.startswith("| `")}
    assert "| a number in (0, 1] | `1e-06` | all |" in lines["learning_rate"]
    assert "| steps, epoch, no | `epoch` | all |" in lines["save_strategy"]
    assert "| a number in (0, 1] | *default of the algorithm* |" in lines["clip_ratio_low"]
    assert "| dpo |" in lines["dpo_beta"]
    assert lines["num_steps"] == "| `num_steps` | `max_steps` |"
