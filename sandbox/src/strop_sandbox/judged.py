"""A program to judge -> the program beside it that runs it to its end and says so."""

from __future__ import annotations

JUDGED = "judged.py"
"""The name of the file, beside this program, that is judged."""

TO_THE_END = f"""
import os, runpy

def run(mark):
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    runpy.run_path({JUDGED!r}, run_name="__main__")
    print("\\n" + mark)

run(os.read(0, 100).decode())
"""
"""Says the word that stood on stdin when `JUDGED` has run to its end; that word stands in no file."""
