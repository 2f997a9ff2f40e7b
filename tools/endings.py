"""Lists every message with which a pipeline can end, in docs/messages.md.

Each message comes with its exit code.

    python -m tools.endings

Takes two seconds. The list comes from the source. It has three kinds of entries: the errors that code makes, the longer
texts that code puts into such errors, and the entries of the tables of error codes. Run the tool after a change of a
message, and read what it changes: `git diff docs/messages.md`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.delivery import errors
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.failures import delta, kafka, postgres, spark, sqlite, system
from oncebench.delivery.failures.cause import NO_RESTART, REPEATED, RESTART, Cause, dropped

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "messages.md"
ROOMS = ("pipeline", "oncebench/delivery", "oncebench/jobs", "oncebench/sinks", "contrib/*/oncebench_*")
KINDS = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PipelineError)}
# No ending: a stop on request, and errors of commands that read an output or a quarantine topic, or end transactions.
NO_ENDINGS = ("StoppedGently", "ReadError")
ELSEWHERE = (
    "oncebench/delivery/copies/", "oncebench/delivery/transactions/", "/reader.py", "/suite.py", "/server.py",
    "/rest_server/", "/kafka/log.py", "/left.py", "oncebench/jobs/transactions.py",
)  # fmt: skip
TABLES: Mapping[str, Mapping[Any, Cause]] = {
    "Kafka broker, code": kafka.BROKER,
    "librdkafka, code": kafka.CLIENT,
    "PostgreSQL, SQLSTATE": postgres.CODES,
    "PostgreSQL, SQLSTATE class": postgres.CLASSES,
    "Delta, condition": delta.CONDITIONS,
    "Spark, condition": spark.CONDITIONS,
    "Spark, text": spark.TEXTS,
    "Spark,": {"no text": spark.JVM_ENDED, "any other text": spark.OTHER},
    "operating system, errno": system.ERRNOS,
    "SQLite, code": sqlite.CODES,
}
# A shorter text is a word or a name, and no part of a message.
PART_WORDS = 8
# Sentences that messages share.
SHARED = {
    "RESTART": RESTART, "NO_RESTART": NO_RESTART, "REPEATED": REPEATED, "NEW_JOB": postgres.NEW_JOB,
    "OF_JOBS": postgres.OF_JOBS,
}  # fmt: skip
SECTIONS = {
    "2": ("Exit code 2: a restart meets the same error", "Do what the message says, then start again."),
    "1": ("Exit code 1: a restart helps, or may help", "A service manager may start the job again."),
    "1 or 2": ("Exit code 1 or 2, by the cause", "The error code decides; the tables below have it."),
    "part": ("Parts of messages", "Code puts these texts into a message of any exit code."),
}
HEAD = f"""# Every message with which a pipeline can end

Search this page for the fixed words of your message. Leave out names and numbers, which stand in braces here. Each line
has the source, the kind of error, and the text. For an error code, your message first has the server's own words, then
the reason of this page in brackets.

The exit codes are those of `python -m pipeline`. A job with `deliver()` ends by a Python exception. It can catch the
error, and end with the code that `oncebench.jobs.exit_code` returns
([your_own_job.md](your_own_job.md#when-a-query-fails)).

Exit code 0 has no message: the pipeline has stopped as asked. An error that is not on this page ends with exit code 1.
Its message is `stopped: `, the error's name and its first line.

Under at-most-once, the message of a failed write ends in another way:

> {dropped("N")}

`python -m tools.endings` writes this page from the source.
"""


@dataclass(frozen=True, order=True)
class Ending:
    """One message with which a pipeline can end.

    The fields are the exit code (a key of SECTIONS), the file or table, the kind of error, and the text.
    """

    code: str
    place: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.place} {self.kind}: {self.text}".replace(" : ", ": ")


@functools.cache
def endings() -> tuple[Ending, ...]:
    """Returns every ending, sorted, each once."""
    return tuple(sorted({*_in_code(), *_in_tables()}))


def _in_code() -> Iterator[Ending]:
    for path in sorted(path for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py")):
        place = str(path.relative_to(ROOT))
        if not any(part in place for part in ELSEWHERE):
            yield from _in_file(place, ast.parse(path.read_text()))


def _in_file(place: str, tree: ast.Module) -> Iterator[Ending]:
    seen: set[int] = {id(node) for node in _not_messages(tree)}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call) and id(node) not in seen):
            kinds = _kinds(call, function)
            if not kinds or (isinstance(function, ast.Module) and kinds == {"?"}):
                continue
            seen |= {id(node) for node in ast.walk(call)}
            kinds -= {"?"}
            if kinds and not kinds & set(NO_ENDINGS) and call.args:
                codes = {"1" if KINDS[kind].restart_helps else "2" for kind in kinds}
                yield Ending(" or ".join(sorted(codes)), place, "/".join(sorted(kinds)), written(call.args[0]))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp) and id(node) not in seen:
            text = written(node) if not isinstance(node, ast.Constant) or isinstance(node.value, str) else ""
            seen |= {id(inner) for inner in ast.walk(node)}
            if len(text.split()) >= PART_WORDS and "failures/" not in place.removeprefix("pipeline/"):
                yield Ending("part", place, "", text)


def _kinds(call: ast.Call, function: ast.AST) -> set[str]:
    """Returns the kinds of error that a call may make.

    `kind(..)` stands for every kind that its function names for it.
    """
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name in KINDS:
        return {name}
    if name != "kind":
        return set()
    assigned = (
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "kind" for to in node.targets)
    )
    named = {node.id for value in assigned for node in ast.walk(value) if isinstance(node, ast.Name)}
    return named & set(KINDS) or {"?"}


def _not_messages(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the nodes of the source that hold no message.

    They are docstrings, constants of modules, and the texts of log lines, assertions, SQL and declared guarantees.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from ast.walk(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        quiet = called.startswith(("_log.", "sql.SQL", "replace", "add")) or called.endswith(
            (".execute", "executemany")
        )
        if quiet or (isinstance(node, ast.Assert | ast.BinOp) and not _is_text(node)):
            yield from ast.walk(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))


def written(node: ast.AST) -> str:
    """Returns a text of the source as one line, with the code of each value in braces."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(written(part) for part in node.values)
        case ast.FormattedValue():
            code = ast.unparse(node.value)
            return SHARED.get(code, f"{{{code}}}")
        case ast.BinOp(op=ast.Add()):
            return written(node.left) + written(node.right)
    return f"{{{ast.unparse(node)}}}"


def _in_tables() -> Iterator[Ending]:
    for table, causes in TABLES.items():
        for code, cause in causes.items():
            of_query = table.startswith("Spark")  # see `of_spark` in oncebench/jobs/exits.py
            restart = REPEATED if of_query else RESTART
            remedy = cause.remedy or ("Mend the cause; the log has details" if of_query else "")
            what = (f"{NO_RESTART} {remedy}, then start again." if cause.permanent
                    else " ".join(filter(None, (remedy and f"{remedy}.", cause.restart or restart))))  # fmt: skip
            kind = "PermanentFailure" if cause.permanent else "QueryDied" if of_query else "DeliveryFailed"
            yield Ending("2" if cause.permanent else "1", f"{table} {code}", kind, f"{cause.reason}. {what}")


def page() -> str:
    """Returns the whole page."""
    parts = [HEAD]
    found = endings()
    for code, (title, what) in SECTIONS.items():
        lines = [str(each) for each in found if each.code == code]
        parts += [f"\n## {title}\n\n{what}\n\n```text\n", *(f"{line}\n" for line in lines), "```\n"]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
