"""The installed Chromium, driven by Playwright: what a page asked for and what went wrong in it is kept.

`from fakes.browser import chromium, Visitor`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, sync_playwright

from fakes.programs import program

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Visitor:
    """One window. `troubles` are errors and warnings of its console; `asked` the addresses it loaded from."""

    page: Page
    url: str
    troubles: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def sign_in(self, key: str) -> None:
        self.page.goto(f"{self.url}/")
        self.page.fill("#key", key)
        self.page.click("button.main")
        self.page.wait_for_url("**/console/jobs")

    def open(self, path: str) -> None:
        """Go there and wait until the page has loaded; logs and charts may still come."""
        reply = self.page.goto(self.url + path)
        assert reply is not None
        assert reply.status == 200, f"{path}: {reply.status}"


@contextmanager
def chromium() -> Generator[Browser]:
    path = program("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(
    browser: Browser, url: str, *, language: str = "en-GB", dark: bool = False, width: int = 1280
) -> Generator[Visitor]:
    """A fresh window without cookies."""
    context = browser.new_context(
        locale=language,
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": 900},
    )
    visitor = Visitor(context.new_page(), url)
    visitor.page.on(
        "console",
        lambda said: visitor.troubles.append(said.text) if said.type in ("error", "warning") else None,
    )
    visitor.page.on("pageerror", lambda error: visitor.troubles.append(str(error)))
    visitor.page.on("request", lambda request: visitor.asked.add(request.url))
    try:
        yield visitor
    finally:
        context.close()
