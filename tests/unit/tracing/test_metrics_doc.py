from pathlib import Path

from strop.tracing.ark_view import UNMEASURED, table
from strop.tracing.catalogue import ABSENT
from strop.tracing.metrics import all_metrics
from strop.tracing.metrics_doc import main, render

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_says_what_the_registry_says():
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m strop.tracing.metrics_doc"


def test_every_metric_has_a_row_with_both_sentences():
    rows = {line.split("`")[1]: line for line in render().splitlines() if line.startswith("| `")}
    others = {*ABSENT, *UNMEASURED, *(theirs for theirs, _ in table())}
    assert set(rows) == {one.name for one in all_metrics()} | others
    for declared in all_metrics():
        row = rows[declared.name]
        assert declared.en.replace("|", "\\|") in row
        assert declared.zh.replace("|", "\\|") in row


def test_ranges_read_as_a_person_writes_them():
    page = {line.split("`")[1]: line for line in render().splitlines() if line.startswith("| `")}
    assert "| ≤ 0.1 |" in page["actor/ppo_kl"]
    assert "| grpo: 0 to 0.05; " in page["actor/pg_clipfrac"]
    assert "| 0 |" in page["group/dropped"]
    assert "\\|old - behaviour logprob\\|" in page["mismatch/logprob_diff_mean"]


def test_the_command_writes_the_page(tmp_path, capsys):
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render()
    assert "wrote" in capsys.readouterr().out
