import logging

from strop.cli.job_record import logging_to


def test_what_is_logged_below_strop_becomes_lines_of_the_trainer_while_the_block_runs() -> None:
    lines: list[tuple[str, str, str]] = []
    logger = logging.getLogger("strop.inference.chat.render")
    with logging_to(lambda *line: lines.append(line)):
        logger.warning("a conversation\nwent on")
        logger.debug("not this")
    logger.warning("nor this")
    assert lines == [
        ("trainer", "stderr", "WARNING a conversation"),
        ("trainer", "stderr", "WARNING went on"),
    ]
