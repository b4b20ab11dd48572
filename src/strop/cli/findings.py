"""Findings -> what a person reads of them in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from strop.cli.text import t
from strop.schema.finding import Text
from strop.schema.responses import FindingInfo

STYLES = {"alarm": "bold red", "warning": "yellow"}


def show_findings(findings: Sequence[FindingInfo], console: Console) -> None:
    """Each with what was seen, why it happens, what to do and what to read."""
    if not findings:
        console.print(t("nothing was found", "没有发现问题"), highlight=False)
    for one in findings:
        style = "dim" if one.ended_step is not None else STYLES.get(one.severity, "yellow")
        console.print(heading(one), style=style, highlight=False, markup=False, soft_wrap=True)
        rows = (("", one.summary), (t("cause", "原因"), one.cause), (t("do", "处置"), one.advice))
        for label, text in rows:
            console.print(f"  {label:<6} {said(text)}", highlight=False, markup=False, soft_wrap=True)
        for witness in one.evidence.trajectories:
            console.print(
                f"  {t('read', '查看'):<6} {witness.rollout_id}   {witness.note}",
                highlight=False,
                markup=False,
                soft_wrap=True,
                style="dim",
            )


def heading(one: FindingInfo) -> str:
    """Rule, title and steps, in a line."""
    until = (
        t(f"to {one.last_step}", f"至第 {one.last_step} 步")
        if one.ended_step is not None
        else t("and holds", "至今")
    )
    return f"{one.rule}  {said(one.title)}   {t('from step', '自第')} {one.first_step} {t('', '步')}{until}"


def said(text: Text | None) -> str:
    """In the reader's language; of a rule that the server does not know there are no words."""
    return t(text.en, text.zh) if text is not None else ""
