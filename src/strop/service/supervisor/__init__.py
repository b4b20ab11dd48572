"""Submitted jobs -> trainers: processes that are started, watched, started again, ended."""

from strop.service.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
