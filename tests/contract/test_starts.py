"""A start finds an output that is older than the checkpoint, and distinguishes outputs.

No sink is named here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from oncebench.delivery.contract import Support, Written
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.marks import Marks
from oncebench.delivery.starts.places import Places
from oncebench.jobs.output import MARKED, OutputChecks, Target
from tests.contract import skips
from tests.contract.attempts import PARTITIONS, Output
from tests.contract.skips import skip_if
from tests.contract.test_sinks import DEFAULTS, EXACT, Make, batch, called, flat, make, spark

__all__ = ["make", "spark"]  # fixtures
pytestmark = [pytest.mark.contract, pytest.mark.spark]


def check(output: Output, noted: int) -> None:
    """A start whose journal and commit log have the batches up to `noted`.

    Each batch has rows in each partition.
    """
    driver = output.driver()
    with closing(driver.sink):
        commits = output.config.checkpoint / "commits"
        commits.mkdir(exist_ok=True)
        for number in range(noted + 1):
            (commits / str(number)).touch()
        written = [Written(partition, 1, 0) for partition in range(PARTITIONS)]
        Marks(driver.journal.folder).note_batch(noted, written, (), output.kind.batch_atomic)
        driver.start(noted)
        marked = output.support.variant in MARKED and driver.sink.keeps_marks
        skip_if(not marked, skips.NO_MARKERS, output.kind.name, output.support)
        config, folder = output.config, driver.journal.folder
        target = Target(output.kind, output.support, config.sink_id, config.output["output"], config.checkpoint)
        OutputChecks(target, driver.journal, Gaps(folder, None), Places(folder)).after_sink(driver.sink)


@pytest.mark.parametrize(  # a commit of Delta takes seconds
    "case", [pytest.param(each, marks=pytest.mark.slow if each[0] == "delta" else ()) for each in EXACT], ids=called
)
def test_an_output_without_a_committed_batch_refuses_the_start(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    assert output.deliver(0, batch(0))
    assert output.deliver(1, batch(1))
    check(output, 1)
    with pytest.raises(RefusedStart, match="the newest batch there is 1, and batch 2 was committed"):
        check(output, 2)
    assert output.visible() == Counter(flat(batch(0), batch(1)))


@pytest.mark.parametrize("case", DEFAULTS, ids=called)
def test_two_outputs_never_have_the_same_identity(make: Make, case: tuple[str, Support]) -> None:
    found = []
    for output in (make(*case), make(*case)):
        assert output.deliver(0, batch(0))
        with closing(output.driver().sink) as sink:
            sink.make_identity()
            found.append(dict(sink.identity()))
    skip_if(not found[0], skips.NO_IDENTITY, *case)
    assert found[0] != found[1]
