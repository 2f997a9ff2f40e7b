"""`python proofs/mutants/mutation_run.py [PATTERN...]`: the tests of the auditor against every mutant of its code.

Promise: mutmut makes the mutants; one counts as killed only if a test fails that its function was seen to run in, or
if it uses up far more processor time than these tests do; the unchanged code must pass first, in such a fork, and a
mutant that raises at once must be killed. What was killed stays killed when this is run again (the tests only grow);
the others are tried again, so a run can be broken off: what it has tried by then is a fair sample. `mutmut run` does
the same with a pytest of its own for each mutant.
What can go wrong: a result that a test module computed when it was imported is that of the unchanged code.
"""

from __future__ import annotations

import gc
import io
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from fnmatch import fnmatch
from math import ceil
from pathlib import Path

import pytest
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.stats import load_stats, save_stats
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

KILLED = 1  # pytest's exit code when a test has failed
NO_TESTS = 33  # mutmut's word for it
ENDLESS = 10  # times what the tests take unchanged: no change but an endless loop takes so much longer
KEPT_EVERY = 20  # mutants, after which results are written down


class Loop:
    """A pytest plugin in place of the loop over the tests: the loop over the mutants.

    Attributes:
        runs_in: by function, the tests that it runs in.
        kills: how many mutants a test has killed, of each function ("" is all): those that kill most come first.
    """

    def __init__(self, files: Sequence[SourceFileMutationData], wanted: Sequence[str]) -> None:
        self.files = files
        self.wanted = wanted
        self.runs_in: dict[str, list[pytest.Item]] = {}
        self.kills: Counter[tuple[str, str]] = Counter()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which tests run which function, then try every mutant, in an order drawn once for all.

        Raises:
            pytest.UsageError: a test file could not be collected, or a test fails on the code as it is.
        """
        if session.testsfailed:
            raise pytest.UsageError(f"{session.testsfailed} test files could not be collected: see above, or run them")
        learn(session)
        items = {item.nodeid: item for item in session.items}
        for function, names in state().tests_by_mangled_function_name.items():
            self.runs_in[function] = [items[name] for name in sorted(names) if name in items]
        if tried(session, "", session.items)[0] != 0:
            raise pytest.UsageError("in a fork, the tests fail on the code as it is")
        if tried(session, "fail", next(filter(None, self.runs_in.values())))[0] != KILLED:
            raise pytest.UsageError("a mutant that raises at once is not noticed")
        left = [
            (file, name)
            for file in self.files
            for name, code in file.exit_code_by_key.items()
            if code != KILLED and (not self.wanted or any(fnmatch(name, pattern) for pattern in self.wanted))
        ]
        gc.freeze()  # what the forks share is not theirs to look through
        random.Random(1).shuffle(left)  # so that a run that is broken off has tried a fair sample
        for number, (file, name) in enumerate(left, start=1):
            file.exit_code_by_key[name] = self._outcome(session, name)
            if number % KEPT_EVERY == 0 or number == len(left):
                for each in self.files:
                    each.save()
                noticed = sum(one.exit_code_by_key[mutant] == KILLED for one, mutant in left[:number])
                print(f"{number} of {len(left)} tried, {noticed} killed", flush=True)
        return True

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
    """Which tests run which function, and how long each takes (processor seconds); as mutmut keeps it, if it does.

    One test of each file is always run, so that what is imported at its first use is there before the forks.
    """
    set_mutant_under_test("stats")
    files: set[Path] = set()
    for item in session.items:
        if item.nodeid in state().duration_by_test and item.path in files:
            continue
        files.add(item.path)
        state()._stats.clear()
        before = time.process_time()
        if not passes(session, item):
            raise pytest.UsageError(f"{item.nodeid} fails on the code as it is")
        state().duration_by_test[item.nodeid] = time.process_time() - before
        for function in state()._stats:
            state().tests_by_mangled_function_name[function].add(item.nodeid)
    with chdir(".."):
        save_stats()


def tried(session: pytest.Session, mutant: str, tests: Sequence[pytest.Item]) -> tuple[int, int]:
    """What came of it (0: all passed, KILLED, or minus the signal that ended it), and how many tests have passed."""
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        with os.fdopen(told, "rb") as passed:
            count = len(passed.read())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), count
    code = KILLED
    try:
        limit = ceil(ENDLESS * (1 + sum(state().duration_by_test[item.nodeid] for item in tests)))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        set_mutant_under_test(mutant)
        for item in tests:
            if not passes(session, item):
                break
            os.write(tell, b".")
        else:
            code = 0
    finally:
        os._exit(code)


def passes(session: pytest.Session, test: pytest.Item) -> bool:
    """Whether a test passes."""
    failed = session.testsfailed
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=None)
    return session.testsfailed == failed


def main(wanted: Sequence[str]) -> int:
    """Make the mutants and try those whose name is like one of `wanted`; all, if there is none."""
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
        file.meta_path = file.meta_path.absolute()  # it is written from within the folder in which the tests run
    load_stats()
    asked = config()
    os.chdir("mutants")
    arguments = [
        "--rootdir=.",
        *asked.pytest_add_cli_args,
        "--timeout=0",
        "-q",
        *asked.pytest_add_cli_args_test_selection,
    ]
    return int(pytest.main(arguments, plugins=[Loop(files, wanted)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
