"""What can go wrong in a load, said to the person who asked for it: what, where, and what to do next."""


class LoadError(Exception):
    """The load cannot start or cannot go on; the message is meant for the user."""


class ConfigError(LoadError):
    """The configuration is wrong: nothing was started, nothing was written."""


class LedgerError(LoadError):
    """The ledger cannot be made or read."""
