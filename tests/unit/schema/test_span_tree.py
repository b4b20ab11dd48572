from fakes.spans import gateway_span, span
from strop.schema.span import RESPONSE_ID, SpanKind, arrange


def names(placed):
    return [("  " * one.depth) + one.span.name for one in placed]


def test_spans_stand_below_their_parents_in_the_order_of_their_start():
    root = span(1, name="invoke_rollout A", kind=SpanKind.ROLLOUT)
    late = span(5, name="chat late", parent_span_id=root.span_id)
    early = span(2, name="chat early", parent_span_id=root.span_id)
    inner = span(3, name="execute_tool add", kind=SpanKind.TOOL, parent_span_id=early.span_id)
    assert names(arrange([late, inner, early, root])) == [
        "invoke_rollout A",
        "  chat early",
        "    execute_tool add",
        "  chat late",
    ]


def test_offsets_count_from_the_first_span_of_the_trace():
    placed = arrange([span(7), span(10)])
    assert [one.offset_ns for one in placed] == [0, 3_000_000]


def test_a_span_whose_parent_never_came_stands_at_the_top():
    assert [one.depth for one in arrange([span(1, parent_span_id="f" * 16)])] == [0]


def test_traces_are_trees_of_their_own_though_span_ids_repeat():
    other = "f" * 32
    first, second = span(1), span(2, trace_id=other, parent_span_id=span(1).span_id)
    assert [(one.span.trace_id, one.depth) for one in arrange([second, first])] == [
        (first.trace_id, 0),
        (other, 0),
    ]


def test_a_call_that_the_agent_traced_is_there_once():
    own = span(1, name="chat by agent", attributes={RESPONSE_ID: "chatcmpl-1"})
    twin = gateway_span(2, name="chat by gateway", attributes={RESPONSE_ID: "chatcmpl-1"})
    alone = gateway_span(3, name="chat untraced", attributes={RESPONSE_ID: "chatcmpl-2"})
    assert names(arrange([own, twin, alone])) == ["chat by agent", "chat untraced"]


def test_spans_whose_parents_make_a_ring_are_not_lost():
    one, two = span(1, parent_span_id=f"{2:016x}"), span(2, parent_span_id=f"{1:016x}")
    assert sorted(names(arrange([one, two]))) == ["chat m1", "chat m2"]
