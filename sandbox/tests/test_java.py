"""Where a Java program stands and which of its classes is run."""

from __future__ import annotations

import time

import pytest

from strop_sandbox.java import java_entry, java_file

MAIN = "public static void main(String[] args) { }"


@pytest.mark.parametrize(
    ("code", "file", "entry"),
    [
        (f"public class Main {{ {MAIN} }}", "Main.java", "Main"),
        (f"class A {{ {MAIN} }}", "A.java", "A"),
        (f"package x.y;\npublic class A {{ {MAIN} }}", "x/y/A.java", "x.y.A"),
        (f"/* a */ package x;\nclass Node {{ int a; }}\nclass A {{ {MAIN} }}", "x/A.java", "x.A"),
        (f"public class Tool {{ }}\nclass Run {{ {MAIN} }}", "Tool.java", "Run"),
        (f"class First {{ {MAIN} }}\npublic class Second {{ {MAIN} }}", "Second.java", "Second"),
        (f"class A {{ static class In {{ {MAIN} }} }}\nclass B {{ {MAIN} }}", "B.java", "B"),
        (f'// public class No {{\nclass A {{ String s = "}} class B {{"; {MAIN} }}', "A.java", "A"),
        (f'@Deprecated() @SuppressWarnings({{"a"}})\npublic final class A {{ {MAIN} }}', "A.java", "A"),
        ("record P(int x) { }\nenum E { A, B }\ninterface R { static void main(String[] a) { } }", "R.java", "R"),
        ("class A { void main(String[] a) { } }\nclass B { int i = 'x'; }", "Main.java", "Main"),
        ("int x = 1;", "Main.java", "Main"),
        ("} } class", "Main.java", "Main"),
    ],
)  # fmt: skip
def test_a_program_is_found_by_its_public_class_or_the_one_with_main(
    code: str, file: str, entry: str
) -> None:
    assert (java_file(code), java_entry(code)) == (file, entry)


@pytest.mark.parametrize("part", ["\n", "/*", '"', '"""\\', "'", "public ", "{", "class A {", "a.", "\\"])
def test_no_source_takes_long_to_read(part: str) -> None:
    started = time.process_time()
    java_entry(part * (400_000 // len(part)))
    assert time.process_time() - started < 5
