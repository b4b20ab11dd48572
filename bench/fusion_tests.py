"""A plugin for pytest in SandboxFusion's own environment: its tests ask the server at STROP_SANDBOX_URL.

Their client is made from their app, in their process; here the same calls go over HTTP, and their models read
what is answered. Standard library and what their environment has: it imports nothing of ours.
"""

import os

import fastapi.testclient
import httpx

_PATIENCE_S = 120.0


def _client(_: object) -> httpx.Client:
    return httpx.Client(base_url=os.environ["STROP_SANDBOX_URL"], timeout=_PATIENCE_S)


fastapi.testclient.TestClient = _client
