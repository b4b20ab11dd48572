"""A language's name -> how its programs are written down, compiled and run: one table, a row each.

Words in a command: `{file}` the program's file, `{class}` the class that is run, `{jars}` the class
path, `{heap_mb}` what a runtime may take of the program's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strop_sandbox.java import java_entry, java_file
from strop_sandbox.jest import REPORTER, REPORTER_CODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """`tools` are the programs it needs, the first its compiler or interpreter; `jars` and `packages` (of
    Python) what it needs besides. `debian` names what gives them. `file` is a name, or made from the code;
    `beside` is what else lies there: names and texts. `entry` finds in the code what is run. `forked`: a
    Python program, which `init` runs in a fork of its own interpreter.

    `cpu_factor`: how much more a program may compute, in all threads together, than its time limit says; a
    runtime that compiles or collects beside the program needs more than one thread's worth.
    """

    name: str
    run: tuple[str, ...]
    file: str | Callable[[str], str]
    tools: tuple[str, ...]
    debian: str
    compile: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    entry: Callable[[str], str] | None = None
    forked: bool = False
    cpu_factor: float = 1.0

    def file_of(self, code: str) -> str:
        return self.file if isinstance(self.file, str) else self.file(code)

    def entry_of(self, code: str) -> str:
        return self.entry(code) if self.entry else ""


_GO = (("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"))
_GO_TEST = (
    "./main -test.paniconexit0 && printf 'ok  \\tcommand-line-arguments\\n'"
    " || { printf 'FAIL\\tcommand-line-arguments\\n'; exit 1; }"
)
"""What `go test` does once tests are compiled: the words of its summary, and no pass by an early exit."""

_JAVA = (
    "java",
    "-ea",
    "-Xss64m",
    "-Xmx{heap_mb}m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
_JAVAC = ("javac", "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-encoding", "UTF-8", "-nowarn")
_JUNIT = (
    *("junit-jupiter-api", "junit-jupiter-engine", "junit-jupiter-params", "junit-platform-console"),
    *("junit-platform-commons", "junit-platform-engine", "junit-platform-launcher"),
    *("junit-platform-reporting", "opentest4j", "opentest4j-reporting-events", "opentest4j-reporting-schema"),
    *("apiguardian-api", "picocli", "univocity-parsers"),
)
_ESBUILD = ("esbuild", "--platform=node", "--format=cjs", "--log-level=warning")

LANGUAGES: tuple[Language, ...] = (
    Language(
        name="python",
        file="main.py",
        run=("python", "{file}"),
        tools=(),
        debian="python3",
        aliases=("py", "python3"),
        forked=True,
    ),
    Language(
        name="c",
        file="main.c",
        compile=("gcc", "-std=gnu17", "-O2", "-o", "main", "{file}", "-lm", "-pthread"),
        run=("./main",),
        tools=("gcc",),
        debian="gcc",
    ),
    Language(
        name="cpp",
        file="main.cpp",
        compile=("g++", "-std=c++17", "-O2", "-o", "main", "{file}", "-pthread"),
        run=("./main",),
        tools=("g++",),
        debian="g++",
        aliases=("c++", "cc", "cxx"),
    ),
    Language(
        name="java",
        file=java_file,
        compile=(*_JAVAC, "-cp", "{jars}", "{file}"),
        run=(*_JAVA, "-cp", "{jars}", "{class}"),
        entry=java_entry,
        tools=("java", "javac"),
        debian="openjdk-17-jdk-headless",
        cpu_factor=2.0,
    ),
    Language(
        name="nodejs",
        file="main.js",
        run=("node", "{file}"),
        tools=("node",),
        debian="nodejs",
        aliases=("js", "javascript", "node"),
        cpu_factor=2.0,
    ),
    Language(
        name="typescript",
        file="main.ts",
        compile=(*_ESBUILD, "--outfile=main.js", "{file}"),
        run=("node", "main.js"),
        tools=("esbuild", "node"),
        debian="esbuild nodejs",
        aliases=("ts",),
        cpu_factor=2.0,
    ),
    Language(
        name="go",
        file="main.go",
        compile=("go", "build", "-o", "main", "{file}"),
        run=("./main",),
        tools=("go",),
        debian="golang-go",
        aliases=("golang",),
        env=_GO,
        cpu_factor=2.0,
    ),
    Language(
        name="go_test",
        file="main_test.go",
        compile=("go", "test", "-vet=off", "-c", "-o", "main", "{file}"),
        run=("sh", "-c", _GO_TEST),
        tools=("go",),
        debian="golang-go",
        env=_GO,
        cpu_factor=2.0,
    ),
    Language(
        name="rust",
        file="main.rs",
        compile=("rustc", "-O", "-o", "main", "{file}"),
        run=("./main",),
        tools=("rustc",),
        debian="rustc",
        aliases=("rs",),
    ),
    Language(
        name="bash",
        file="main.sh",
        run=("bash", "{file}"),
        tools=("bash",),
        debian="bash",
        aliases=("sh", "shell"),
    ),
    Language(name="php", file="main.php", run=("php", "-f", "{file}"), tools=("php",), debian="php-cli"),
    Language(
        name="ruby", file="main.rb", run=("ruby", "{file}"), tools=("ruby",), debian="ruby", aliases=("rb",)
    ),
    Language(
        name="perl", file="main.pl", run=("perl", "{file}"), tools=("perl",), debian="perl", aliases=("pl",)
    ),
    Language(name="lua", file="main.lua", run=("lua", "{file}"), tools=("lua",), debian="lua5.4"),
    Language(
        name="R",
        file="main.R",
        run=("Rscript", "--vanilla", "{file}"),
        tools=("Rscript",),
        debian="r-base-core",
        aliases=("r",),
    ),
    Language(
        name="sql",
        file="main.sql",
        run=("sqlite3", "-batch", "-bail", ":memory:", ".read {file}"),
        tools=("sqlite3",),
        debian="sqlite3",
        aliases=("sqlite",),
    ),
    Language(
        name="pytest",
        file="test_main.py",
        run=("python", "-m", "pytest", "-p", "no:cacheprovider", "{file}"),
        tools=(),
        debian="python3-pytest",
        packages=("pytest",),
        env=(("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),),
    ),
    Language(
        name="junit",
        file=java_file,
        compile=(*_JAVAC, "-cp", "{jars}", "{file}"),
        run=(
            *_JAVA,
            *("-cp", "{jars}", "org.junit.platform.console.ConsoleLauncher"),
            *("--disable-banner", "--disable-ansi-colors", "--scan-classpath", "."),
            *("--include-classname", ".*"),
        ),
        tools=("java", "javac"),
        debian="junit5 openjdk-17-jdk-headless",
        jars=_JUNIT,
        cpu_factor=2.0,
    ),
    Language(
        name="jest",
        file="main.test.ts",
        compile=(*_ESBUILD, "--outfile=main.test.js", "{file}"),
        run=(
            "jest",
            "--ci",
            "--config={}",
            "--colors=false",
            "--watchman=false",
            "--cache=false",
            "-i",
            "--rootDir=.",
            "--reporters=default",
            f"--reporters=<rootDir>/{REPORTER}",
            "--",
            "main.test.js",
        ),
        beside=((REPORTER, REPORTER_CODE),),
        tools=("jest", "esbuild", "node"),
        debian="jest esbuild nodejs",
        cpu_factor=2.0,
    ),
)

BY_NAME = {word: one for one in LANGUAGES for word in (one.name, *one.aliases)}

REFERENCE_NAMES = (
    *(
        "python",
        "cpp",
        "nodejs",
        "go",
        "go_test",
        "java",
        "php",
        "csharp",
        "bash",
        "typescript",
        "sql",
        "rust",
    ),
    *(
        "cuda",
        "lua",
        "R",
        "perl",
        "D_ut",
        "ruby",
        "scala",
        "julia",
        "pytest",
        "junit",
        "kotlin_script",
        "jest",
    ),
    *("verilog", "python_gpu", "lean", "swift", "racket", "c"),
)
"""What a request may name. Those without a row above are answered as a language that this server lacks."""
