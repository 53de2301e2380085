"""The exit codes of every command, each with one meaning."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FOUND = 1
    NOT_STARTED = 2
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """What the code means, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done, and nothing is wrong",
    ExitCode.FOUND: "it ran, and something is wrong, missing or failed on the way: the output names it",
    ExitCode.NOT_STARTED: "it could not start: an option, the configuration, the history folder, a program or the port",
    ExitCode.HUNG_UP: "ended because its terminal went away",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
