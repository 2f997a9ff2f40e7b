"""Errors of a load. Each message is for the user: what is wrong, where, and what to do."""


class LoadError(Exception):
    """The load cannot start or cannot continue."""


class ConfigError(LoadError):
    """The configuration is wrong. Nothing was started and nothing was written."""


class LedgerError(LoadError):
    """The ledger cannot be created or read."""
