"""Tracks the time of code that runs per event, row or transaction.

Pure Python without a JVM. All of it takes seconds.
"""

from asv_runner.benchmarks.mark import SkipNotImplemented as _Skip

from oncebench import micro as _micro


class _Work:
    version = "2"

    def setup(self):
        self.work = _micro.Work()


class Load(_Work):
    """The load generator: its schedule, and the encoding of its events."""

    def time_schedule(self):
        self.work.schedule()

    def time_encode(self):
        self.work.encode()


class Pipeline(_Work):
    """The pipeline: checks of unusual events, rows, a batch's digest, the message that commits."""

    def time_check(self):
        self.work.check()

    def time_rows(self):
        self.work.rows()

    def time_digest(self):
        self.work.digest()

    def time_end_txn(self):
        self.work.end_txn()


class Audit(_Work):
    """The Python auditor: the rows that the input requires."""

    def time_expected_output(self):
        self.work.expected_output()


class _Newer(_Work):
    """Work that older commits lack; they skip it."""

    def setup(self):
        super().setup()
        if not hasattr(self.work, self.needs):
            raise _Skip


class Ledger(_Newer):
    """The generator's ledger: written to disk, and opened."""

    needs = "ledger"

    def time_ledger(self):
        self.work.ledger()


class Packing(_Newer):
    """The pipeline's checks of a record batch of usual events, which it packs into rows."""

    needs = "pack"

    def time_pack(self):
        self.work.pack()


class WholeAudit(_Newer):
    """The whole Python auditor, for a run without a fault."""

    needs = "audit"

    def time_audit(self):
        self.work.audit()
