"""The only access to local processes: streamed to a log, bounded in time and memory, killed as a tree."""

from agent.host.processes.contract import ProcessResult, ProcessRunner, RunningProcess
from agent.host.processes.local import LocalProcesses

__all__ = ["LocalProcesses", "ProcessResult", "ProcessRunner", "RunningProcess"]
