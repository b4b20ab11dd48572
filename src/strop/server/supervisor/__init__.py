"""Submitted jobs -> trainers: processes that are started, watched, started again, ended. The store is all it knows."""

from strop.server.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
