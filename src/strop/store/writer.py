"""Writes -> transactions, on one thread, in order, many at once. Knows nothing of what is written."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from sqlalchemy.exc import DatabaseError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from strop.errors import StoreError
from strop.locales import msg
from strop.store.database import Database

QUEUE_LIMIT = 4096
"""Writes that may wait. A caller that meets a full queue waits for the disk."""

BATCH_LIMIT = 256
"""Writes in one transaction, so that the lock is held for milliseconds."""

RETRY_S = 1.0
"""Between two tries while the database refuses."""

Write = Callable[[Session], object]

_log = logging.getLogger(__name__)


class Writer:
    """A bounded queue before a database.

    A refusal (disk full, locked, gone) keeps everything waiting and is logged once; a write that can never
    succeed is set aside and logged, so that it does not hold up the others. Both are raised by `flush`.

    Concurrency:
        Every method may be called from any thread; writes keep their order.
    Side effects:
        Starts a thread; `close` ends it.
    """

    def __init__(self, database: Database, *, name: str, queue_limit: int = QUEUE_LIMIT) -> None:
        self._database = database
        self._limit = queue_limit
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[Write] = deque()
        self._accepted = 0
        self._done = 0
        self._refusal: StoreError | None = None
        self._num_refusals = 0
        self._urgent = False
        self._lost: list[Exception] = []
        self._closed = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        """Accept a write; it runs in a session of a later transaction.

        Raises:
            StoreError: closed, or full while the database refuses. A full queue of a slow database waits.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._waiting) < self._limit or self._refusal is not None or self._closed
            )
            if self._closed:
                raise StoreError(msg("nothing more can be recorded: the recorder is closed"))
            if self._refusal is not None and len(self._waiting) >= self._limit:
                raise self._unwritten(self._refusal)
            self._waiting.append(write)
            self._accepted += 1
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all accepted so far is done with, the database has refused once more, or all is over."""
        with self._changed:
            target, refusals = self._accepted, self._num_refusals
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._done >= target or self._num_refusals > refusals or self._ended
            )

    def taken(self) -> bool:
        """Drain; False where the database refuses."""
        self.drain()
        with self._changed:
            return self._refusal is None

    def flush(self) -> None:
        """Drain, and raise what went wrong since the last flush.

        Raises:
            StoreError: the database refuses, or writes were set aside.
        """
        self.drain()
        with self._changed:
            if self._refusal is not None:
                raise self._unwritten(self._refusal)
            lost, self._lost = self._lost, []
        if lost:
            raise StoreError(
                msg(
                    "{num_lost} records could not be written; the first: {lost}",
                    num_lost=len(lost),
                    lost=lost[0],
                )
            ) from lost[0]

    def close(self) -> None:
        """Flush and end the thread; what the database refuses to the last is lost, and raised."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        try:
            self.flush()
        finally:
            with self._changed:
                self._waiting.clear()
                self._ended = True
                self._changed.notify_all()
            self._thread.join()

    def _unwritten(self, refusal: StoreError) -> StoreError:
        return StoreError(
            msg(
                "{num_waiting} records are not written: {message}",
                num_waiting=len(self._waiting),
                message=refusal.message,
            ),
            fix=refusal.fix,
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                self._urgent = False
                batch = list(islice(self._waiting, BATCH_LIMIT))
            done, refusal = self._write(batch)
            with self._changed:
                for _ in range(min(done, len(self._waiting))):  # `close` may have given up on them
                    self._waiting.popleft()
                self._done += done
                self._note(refusal)
                self._changed.notify_all()
                if refusal is not None:
                    self._changed.wait_for(lambda: self._urgent or self._closed, timeout=RETRY_S)

    def _note(self, refusal: StoreError | None) -> None:
        if refusal is not None:
            self._num_refusals += 1
            if self._refusal is None:
                _log.error("nothing can be recorded for now; all is kept and tried again: %s", refusal)
        elif self._refusal is not None:
            _log.warning("records are written again")
        self._refusal = refusal

    def _write(self, batch: Sequence[Write]) -> tuple[int, StoreError | None]:
        """Returns how many are done with, and the refusal that stopped the rest."""
        try:
            self._commit(batch)
        except Exception as error:  # noqa: BLE001  the edge of this thread: nothing above would see it
            refusal = _refusal_in(error)
            if refusal is not None:
                return 0, refusal
            if len(batch) > 1:  # which one it is shows only one by one
                return self._write_singly(batch)
            _log.error("a record can never be written and is set aside: %s", error)
            with self._changed:
                self._lost.append(error)
        return len(batch), None

    def _write_singly(self, batch: Sequence[Write]) -> tuple[int, StoreError | None]:
        for index, write in enumerate(batch):
            _, refusal = self._write([write])
            if refusal is not None:
                return index, refusal
        return len(batch), None

    def _commit(self, batch: Sequence[Write]) -> None:
        with self._database.write() as session:
            for write in batch:
                write(session)


def _refusal_in(error: Exception) -> StoreError | None:
    """The error, if the same write may succeed later: the database's state is at fault, not the record."""
    if not isinstance(error, StoreError):
        return None
    cause = error.__cause__
    transient = isinstance(cause, OperationalError | InterfaceError | PoolTimeoutError)
    return error if transient or type(cause) is DatabaseError else None
