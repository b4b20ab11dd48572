"""`strop demo`: the whole flow once, on the calculator example, in a few minutes on a laptop."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from strop.cli.memory import use_huge_pages
from strop.cli.text import t
from strop.errors import StropError

if TYPE_CHECKING:
    from strop.cli.session import Session
    from strop.pipeline.course import RunResult
    from strop.schema.trajectory import Trajectory

NUM_QUESTIONS = 3
SUMMARY = "summary.json"


def demo(
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help=t("Training steps; the example's own if not given.", "训练步数；默认用示例的设置。")
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=t("Seed of data order and sampling.", "数据顺序与采样的种子。"))
    ] = None,
    out: Annotated[
        Path, typer.Option(help=t("Folder for the summary and the checkpoint.", "摘要与检查点的目录。"))
    ] = Path("demo"),
) -> None:
    """"""
    from strop.cli.run import EXIT_CANCELED, read_job, summary
    from strop.cli.training_here import train_here

    use_huge_pages()
    started = time.monotonic()
    console = Console()
    config = read_job(example() / "job.yaml", [], steps=steps, seed=seed)
    console.print(
        t(
            f"Training {config.model.name} with {config.hyper_parameters.algorithm} to use a calculator.",
            f"用 {config.hyper_parameters.algorithm} 训练 {config.model.name} 使用计算器。",
        )
    )
    answers: list[dict[str, object]] = []

    async def ask(session: Session, _result: RunResult) -> None:
        console.print(t("\nThree held-out questions:", "\n三个未参与训练的问题："), style="bold")
        for question, trajectory in await ask_held_out(session):
            show(console, question, trajectory)
            answers.append(
                {
                    "question": question,
                    "answer": str(trajectory.messages[-1].get("content", "")) if trajectory.messages else "",
                    "right": trajectory.reward is not None and trajectory.reward > 0.5,
                }
            )

    # An earlier demo left its summary; any other run's checkpoints are not ours to remove.
    anew = (out / SUMMARY).is_file()
    result, session = train_here(config, console, out=out, anew=anew, then=ask)
    told = {
        **summary(session.config, session.job_id, result, published_as=session.published_as),
        "wall_s": round(time.monotonic() - started, 1),
        "questions": answers,
    }
    path = out / SUMMARY
    out.mkdir(parents=True, exist_ok=True)  # a run ended before its first step has made nothing
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    say_what_next(console, path, result)
    if result.status.value == "CANCELED":
        raise typer.Exit(EXIT_CANCELED)


demo.__doc__ = t(
    "Train a small model to use a calculator, and ask it three questions it has not seen.",
    "训练一个小模型使用计算器，然后问它三个没有见过的问题。",
)


def example() -> Path:
    """The calculator example of this checkout.

    Raises:
        StropError: Strop was installed without its examples.
    """
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        folder = root / "examples" / "calculator"
        if (folder / "job.yaml").is_file():
            return folder
    raise StropError(
        t("the example folder examples/calculator is not here", "找不到示例目录 examples/calculator"),
        fix=t("run this in a clone of the repository", "请在仓库的克隆中运行"),
    )


async def ask_held_out(session: Session) -> list[tuple[str, Trajectory]]:
    """Let the agent answer the first validation samples with the weights as they are now, greedily."""
    from strop.pipeline.reward import reward, reward_plan
    from strop.pipeline.rollout import rollout, rollout_plan

    if session.validation is None:
        return []
    plan = rollout_plan(session.config, session.job_id)
    plan = replace(
        plan, prefix="demo", n_rollouts=1, training=False, sampling=replace(plan.sampling, temperature=0.0)
    )
    machines = session.machines
    samples = session.validation.samples[:NUM_QUESTIONS]
    groups = await rollout(samples, plan, machines.capture, machines.functions, lambda done, total: None)
    groups = await reward(groups, reward_plan(session.config, session.job_id), machines.functions)
    return [(str(group.sample.messages[-1]["content"]), group.trajectories[0]) for group in groups]


def show(console: Console, question: str, trajectory: Trajectory) -> None:
    """The question and every message that came after it."""
    console.print(f"\n  {t('question', '问题'):<10}  {question}", markup=False, highlight=False)
    spoken = trajectory.messages
    start = next(
        (i for i, message in enumerate(spoken) if message.get("content") == question), len(spoken) - 1
    )
    for message in spoken[start + 1 :]:
        who = t("model", "模型") if message.get("role") == "assistant" else t("calculator", "计算器")
        console.print(f"  {who:<10}  {message.get('content')}", markup=False, highlight=False)
    if trajectory.error:
        console.print(f"  {trajectory.error}", style="red", markup=False)


def say_what_next(console: Console, path: Path, result: RunResult) -> None:
    chat = f"  .venv/bin/strop chat {result.checkpoint}\n" if result.checkpoint else ""
    console.print(
        t(
            f"\nSummary: {path}\nWhat next:\n{chat}"
            "  open examples/calculator/functions/reward.py, write a reward of your own, then\n"
            "  .venv/bin/strop run examples/calculator/job.yaml",
            f"\n摘要：{path}\n接下来：\n{chat}"
            "  打开 examples/calculator/functions/reward.py，写一个你自己的奖励，然后\n"
            "  .venv/bin/strop run examples/calculator/job.yaml",
        ),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
