"""`/docs`: the OpenAPI document as one plain page that loads nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
:root { color-scheme: light dark; }
h2 { margin-top: 2.5rem; } code { font-size: 0.95em; } details { margin: 0.4rem 0; }
summary { cursor: pointer; } .method { display: inline-block; width: 4.5em; font-weight: 600; }
table { border-collapse: collapse; margin: 0.5rem 0 1rem 4.5em; } td { padding: 0 1rem 0.1rem 0; }
.quiet { opacity: 0.7; }
"""


@router.get("/docs")
def docs(request: Request) -> Response:
    document: dict[str, Any] = request.app.openapi()
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(render(document), headers=headers)


def render(document: dict[str, Any]) -> str:
    """Routes by noun, each with its parameters and the fields of its body."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            tag = (route.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_route(document, path, method, route))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(routes)}" for tag, routes in by_tag.items())
    title = escape(document["info"]["title"])
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title} API</title><style>{_STYLE}</style><h1>{title} API</h1>"
        f"<p>{escape(document['info'].get('summary', ''))} "
        f"<a href='/openapi.json'>openapi.json</a></p>{sections}</html>"
    )


def _route(document: dict[str, Any], path: str, method: str, route: dict[str, Any]) -> str:
    rows = [
        (one["name"], f"{one['in']}, {_type(one['schema'])}", bool(one.get("required")))
        for one in route.get("parameters", [])
    ]
    rows += _body(document, route)
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td class='quiet'>{escape(kind)}</td>"
        f"<td class='quiet'>{'required' if required else ''}</td></tr>"
        for name, kind, required in rows
    )
    head = f"<span class='method'>{method.upper()}</span><code>{escape(path)}</code>"
    return f"<details><summary>{head} {escape(route['summary'])}</summary><table>{cells}</table></details>"


def _body(document: dict[str, Any], route: dict[str, Any]) -> list[tuple[str, str, bool]]:
    content: dict[str, Any] = route.get("requestBody", {}).get("content", {})
    for media, described in content.items():
        schema: dict[str, Any] = described.get("schema", {})
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        required = set(schema.get("required", []))
        fields: dict[str, Any] = schema.get("properties", {})
        if not fields:
            return [("body", media, True)]
        return [(name, f"{media}, {_type(field)}", name in required) for name, field in fields.items()]
    return []


def _type(schema: dict[str, Any]) -> str:
    options: list[dict[str, Any]] = schema.get("anyOf", [schema])
    names = [str(one.get("type") or one.get("$ref", "object").rsplit("/", 1)[-1]) for one in options]
    text = " or ".join(name for name in names if name != "null")
    return f"{text}, {schema['default']!r} unless given" if schema.get("default") is not None else text
