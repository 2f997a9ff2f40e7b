"""`python proofs/mutants/mutation_run.py [FILE...]`: tests the mutants of files.

Without FILE, they are the auditor's files.

Promise:

- mutmut makes the mutants. `mutmut run` does the same with a new pytest process for each mutant.
- A mutant counts as killed only if a test fails that runs the mutated function, or if it needs far too much processor
  time.
- Before that, the unchanged code must pass in such a fork, and a mutant that raises at once must be killed.
- A killed mutant stays killed in later runs, because tests are only added. The others are tried again.
- The outcome of a whole file is stored in OUTCOMES, which belongs to the repository. A file that has not changed since
  is not tried again unless it is named. So a run can be interrupted, and go on on another machine.

What can go wrong: a value that a test module computes during its import comes from the unchanged code.
"""

from __future__ import annotations

import gc
import io
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from math import ceil
from pathlib import Path

import pytest
from mutation_outcomes import changed_lines, is_done, store
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

KILLED = 1  # pytest's exit code when a test has failed
FAILED = 2  # of a fork that ended outside its tests
NO_TESTS = 33  # mutmut's code for a function that no test runs
ENDLESS = 10  # times the normal duration of a test: only an endless loop takes longer
SAVE_EVERY = 20  # results are saved after this many mutants
ROOT = Path(__file__).parents[2]


class Loop:
    """A pytest plugin that replaces the loop over tests by a loop over mutants.

    Attributes:
        runs_in: by function, the tests that run it.
        kills: mutants killed by each test, per function ("" for all); tests with most kills run first.
    """

    def __init__(self, files: Sequence[SourceFileMutationData], wanted: Sequence[str]) -> None:
        self.files = files
        self.wanted = wanted
        self.runs_in: dict[str, list[pytest.Item]] = {}
        self.kills: Counter[tuple[str, str]] = Counter()

    def pytest_sessionstart(self) -> None:
        """Runs before the tests are imported: they must import the replaced functions."""
        from remembered_counts import remember_counts  # noqa: PLC0415  imports the mutated copy of the package

        remember_counts()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Finds which tests run which function, then tries the mutants of one file after another.

        Raises:
            pytest.UsageError: a test file could not be collected, or a test fails on the unchanged code.
        """
        if session.testsfailed:
            raise pytest.UsageError(f"{session.testsfailed} test files could not be collected: see above, or run them")
        learn(session)
        items = {item.nodeid: item for item in session.items}
        for function, names in state().tests_by_mangled_function_name.items():
            self.runs_in[function] = [items[name] for name in sorted(names) if name in items]
        if tried(session, "", session.items)[0] != 0:
            raise pytest.UsageError("in a fork, the tests fail on the unchanged code")
        if tried(session, "fail", next(filter(None, self.runs_in.values())))[0] != KILLED:
            raise pytest.UsageError("a mutant that raises at once is not noticed")
        gc.freeze()  # the forks must not collect the objects that they share
        for file in sorted(self.files, key=lambda each: len(each.exit_code_by_key)):  # short ones: they end soonest
            path = str(file.path)
            if file.exit_code_by_key and (path in self.wanted if self.wanted else not is_done(ROOT, path)):
                self._try_file(session, file)
        return True

    def _try_file(self, session: pytest.Session, file: SourceFileMutationData) -> None:
        left = [name for name, code in file.exit_code_by_key.items() if code != KILLED]
        for number, name in enumerate(left, start=1):
            file.exit_code_by_key[name] = self._outcome(session, name)
            if number % SAVE_EVERY == 0 or number == len(left):
                file.save()
                noticed = sum(file.exit_code_by_key[mutant] == KILLED for mutant in left[:number])
                print(f"\n{file.path}: {number} of {len(left)} tried, {noticed} killed", flush=True)
        with chdir(ROOT):
            alive = (name for name, code in file.exit_code_by_key.items() if code != KILLED)
            survivors = {name: changed_lines(name, file.path) for name in alive}
        store(ROOT, str(file.path), len(file.exit_code_by_key), survivors)

    def _outcome(self, session: pytest.Session, mutant: str) -> int:
        function = mangled_name_from_mutant_name(mutant)
        tests = sorted(self.runs_in.get(function, []), key=lambda test: self._place(function, test.nodeid))
        if not tests:
            return NO_TESTS
        code, passed = tried(session, mutant, tests)
        if code == KILLED and passed < len(tests):
            self.kills.update((each, tests[passed].nodeid) for each in (function, ""))
        return code

    def _place(self, function: str, test: str) -> tuple[int, int, float]:
        return -self.kills[function, test], -self.kills["", test], state().duration_by_test[test]


def learn(session: pytest.Session) -> None:
    """Finds which tests run which function, and each test's processor time.

    All tests run once in this process. So lazy imports happen before the forks, and the forks know the counts of the
    second auditor.
    """
    set_mutant_under_test("stats")
    for item in session.items:
        state()._stats.clear()
        before = time.process_time()
        if not passes(session, item):
            raise pytest.UsageError(f"{item.nodeid} fails on the unchanged code")
        state().duration_by_test[item.nodeid] = time.process_time() - before
        for function in state()._stats:
            state().tests_by_mangled_function_name[function].add(item.nodeid)


def tried(session: pytest.Session, mutant: str, tests: Sequence[pytest.Item]) -> tuple[int, int]:
    """Runs tests on a mutant in a fork.

    Returns the outcome (0: all passed, KILLED, or minus another signal that ended the fork) and the number of passed
    tests.

    Raises:
        pytest.UsageError: the fork failed outside its tests, so the mutant has no outcome.
    """
    progress, report = os.pipe()
    child = os.fork()
    if child:
        os.close(report)
        with os.fdopen(progress, "rb") as passed:
            count = len(passed.read())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == FAILED:
            raise pytest.UsageError(f"{mutant or 'the unchanged code'}: its fork failed outside its tests, see above")
        return KILLED if code == -signal.SIGXCPU else code, count  # an endless loop does not pass its test
    code = FAILED
    try:
        nowhere, errors = os.open(os.devnull, os.O_WRONLY), os.dup(2)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        set_mutant_under_test(mutant)
        for item in tests:
            limit = ceil(time.process_time() + ENDLESS * (1 + state().duration_by_test[item.nodeid]))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))  # ends the fork by a signal
            if not passes(session, item):
                code = KILLED
                break
            os.write(report, b".")
        else:
            code = 0
    except BaseException:
        os.dup2(errors, 2)
        traceback.print_exc()
    finally:
        os._exit(code)


def passes(session: pytest.Session, test: pytest.Item) -> bool:
    """Whether a test passes."""
    failed = session.testsfailed
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=None)
    return session.testsfailed == failed


def main(wanted: Sequence[str]) -> int:
    """Makes the mutants and tries those of the files in `wanted`.

    If `wanted` is empty, it tries the mutants of each file without a stored outcome.
    """
    Path("mutants").mkdir(exist_ok=True)
    set_mutant_under_test("mutant_generation")
    with redirect_stdout(io.StringIO()):
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.setup_source_paths()
        mutmut.create_mutants(1)
    files = [SourceFileMutationData(path=path) for path in walk_mutatable_files()]
    for file in files:
        file.load()
        file.meta_path = file.meta_path.absolute()  # the tests run in another folder
    asked = config()
    os.chdir("mutants")
    arguments = [
        "--rootdir=.",
        *asked.pytest_add_cli_args,
        "--timeout=0",
        "--tb=no",  # the text of a failure takes longer than most tests: pytest parses the mutated sources for it
        "-q",
        *asked.pytest_add_cli_args_test_selection,
    ]
    return int(pytest.main(arguments, plugins=[Loop(files, wanted)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
