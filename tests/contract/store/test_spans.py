from fakes.spans import span
from strop.schema.job import JobStatus
from strop.schema.span import SpanKind, SpanStatus
from strop.store.jobs import delete_job, move_job
from strop.store.spans import list_spans, record_spans, span_tree


def write(database, *spans, job_id="job-1"):
    with database.write() as session:
        return record_spans(session, job_id, spans)


def ids(database, **asked):
    with database.read() as session:
        return [int(one.span_id, 16) for one in list_spans(session, "job-1", **asked).items]


def test_a_span_comes_back_as_it_was(database, job):
    whole = span(
        1,
        parent_span_id="b" * 16,
        message="refused \ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        attributes={"gen_ai.tool.name": "add", "n": 3, "list": ["a"], "deep": {"x": 1.5}},
        events=({"name": "exception", "time_ns": 5, "attributes": {"exception.type": "ValueError"}},),
        scope="strop",
        service="agent",
        start_ns=2**62,
    )
    write(database, whole)
    with database.read() as session:
        assert list_spans(session, "job-1").items == (whole,)


def test_a_batch_that_comes_twice_is_stored_once(database, job):
    first, second = (write(database, *two) for two in ((span(1), span(2)), (span(2), span(3), span(3))))
    assert ids(database) == [1, 2, 3]
    assert first == {(span(number).trace_id, span(number).span_id) for number in (1, 2)}
    assert second == {(span(3).trace_id, span(3).span_id)}


def test_spans_are_found_by_what_they_are_of(database, job):
    write(
        database,
        span(1, rollout_id="s1-0-r0", duration_ns=5_000_000),
        span(2, rollout_id="s1-0-r1", kind=SpanKind.TOOL, name="execute_tool add_100%"),
        span(3, rollout_id="s1-0-r1", status=SpanStatus.ERROR, message="TimeoutError: no answer"),
        span(
            4, rollout_id="s1-0-r1", attempt_id="a2", attributes={"gen_ai.tool.call.result": "it is\nseven"}
        ),
    )
    assert ids(database, rollout_id="s1-0-r1") == [2, 3, 4]
    assert ids(database, rollout_id="s1-0-r1", attempt_id="a2") == [4]
    assert ids(database, kind=SpanKind.TOOL) == [2]
    assert ids(database, status=SpanStatus.ERROR) == [3]
    assert ids(database, name="add_100%") == [2]
    assert ids(database, text="timeouterror") == [3]
    assert ids(database, text="is seven") == [4]
    assert ids(database, min_duration_ms=2) == [1]


def test_a_page_goes_on_where_the_one_before_ended(database, job):
    write(database, *(span(number) for number in range(1, 6)))
    with database.read() as session:
        first = list_spans(session, "job-1", limit=2)
        second = list_spans(session, "job-1", limit=3, after=first.next)
    assert [int(one.span_id, 16) for one in (*first.items, *second.items)] == [1, 2, 3, 4, 5]
    assert (first.more, second.more) == (True, False)


def test_the_tree_of_a_rollout_holds_its_spans_and_no_others(database, job):
    root = span(1, kind=SpanKind.ROLLOUT)
    write(database, root, span(2, parent_span_id=root.span_id), span(3, rollout_id="s1-0-r7"))
    with database.read() as session:
        placed = span_tree(session, "job-1", "s1-0-r0")
    assert [(int(one.span.span_id, 16), one.depth) for one in placed] == [(1, 0), (2, 1)]


def test_spans_go_with_their_job(database, job):
    write(database, span(1))
    with database.write() as session:
        move_job(session, "job-1", JobStatus.CANCELED)
        delete_job(session, "job-1")
    assert ids(database) == []
