"""Pipe bytes -> bounded lines."""

from strop.processes.child import MAX_LINE_BYTES, LineSplitter
from strop.workers.masking import Mask


def test_lines_are_put_together_from_chunks() -> None:
    lines = LineSplitter(mask=str)
    assert lines.feed(b"a\nb") == ["a"]
    assert lines.feed(b"c") == []
    assert lines.feed(b"\n\nrest") == ["bc", ""]
    assert lines.end() == ["rest"]
    assert lines.end() == []


def test_a_character_may_be_split_between_chunks_and_bad_bytes_are_replaced() -> None:
    lines = LineSplitter(mask=str)
    euro = "€".encode()
    assert lines.feed(euro[:1]) == []
    assert lines.feed(euro[1:] + b"\n\xff\n") == ["€", "\N{REPLACEMENT CHARACTER}"]


def test_a_progress_bar_leaves_what_a_terminal_shows_last() -> None:
    assert LineSplitter(mask=str).feed(b"10%\r50%\r100%\r\n") == ["100%"]


def test_a_long_line_is_cut_and_says_how_long_it_was() -> None:
    lines = LineSplitter(mask=str)
    for _ in range(1000):
        assert lines.feed(b"x" * 1000) == []
    (line,) = lines.feed(b"\n")
    assert line == "x" * MAX_LINE_BYTES + " ... (cut; the line has 1000000 bytes)"
    assert lines.feed(b"next\n") == ["next"]


def test_a_secret_on_the_cut_is_masked_first() -> None:
    lines = LineSplitter(mask=Mask(["0123456789abcdef"]))
    start = b"x" * (MAX_LINE_BYTES - 4)
    (line,) = lines.feed(start + b"0123456789abcdef and more\n")
    assert "0123" not in line
    assert line.startswith("x" * (MAX_LINE_BYTES - 4) + "***")
