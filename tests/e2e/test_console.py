"""The console in a real browser while a real trainer works on a job with a tiny random model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from e2e.test_service import FUNCTIONS, HYPER, submit
from fakes.browser import Visitor, chromium, visiting
from fakes.console import record_job
from fakes.model import save_tiny_model
from fakes.replicas import Barracks
from fakes.server import Server, eventually, serving
from strop.service.supervisor.trainers import TRAINER_COMMAND
from strop.store.trajectory_lists import Wanted, find_trajectories

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    "resultTypes": ["violations"],
}
"""Of axe: what the guidelines ask for at levels A and AA."""

_CALL = "        reply = await client."
PATIENT = "import asyncio\n" + FUNCTIONS.replace(_CALL, f"        await asyncio.sleep(1)\n{_CALL}")
"""The job goes on all the while; a pause in each rollout leaves the processors to the pages."""


@dataclass
class Service:
    server: Server
    job_id: str

    @property
    def url(self) -> str:
        return self.server.url

    def trains(self) -> None:
        """Wait until its first steps are there; the trainer starts while other tests run."""
        path = f"/fine-tunes/{self.job_id}/metrics"
        eventually(lambda: len(self.server.get(path)["metrics"]) > 20, within_s=240)

    def pages(self) -> list[str]:
        """One of each kind; those of the job that trains, and of one with tools and hostile words."""
        job, other = f"/console/jobs/{self.job_id}", "/console/jobs/ft-1"
        tool, hostile = (self.key("ft-1", f"1-train-0-r{index}") for index in (1, 0))
        function = self.server.get("/functions")["functions"][0]["entity_id"]
        file = self.server.http.get("/files").json()["data"]["files"][0]["file_id"]
        return [
            "/console/jobs",
            job,
            f"{job}/trajectories",
            f"{job}/samples",
            f"{other}/samples?sample=train-0",
            f"{job}/rollouts",
            f"{other}/trajectories/{tool}",
            f"{other}/trajectories/{hostile}",
            f"{other}/trajectories/{tool}/tracing",
            f"{other}/side-by-side?key={tool}&key={hostile}",
            f"{job}/metrics",
            f"{job}/logs",
            f"{other}/logs",
            f"{job}/output",
            f"/console/compare?job={self.job_id}&job=ft-1",
            "/console/functions",
            f"/console/functions/{function}",
            "/console/files",
            f"/console/files/{file}",
            "/console/models",
            "/console/models/tiny",
            "/console/deployments",
            "/console/keys",
        ]

    def key(self, job_id: str, rollout_id: str) -> int:
        with self.server.database.read() as session:
            wanted = Wanted(split="train", rollout_id=rollout_id)
            return find_trajectories(session, job_id, wanted).items[0].key


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("console")
    barracks = Barracks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STROP_HOME", str(folder / "home"))
        with serving(folder / "home", trainer=tuple(TRAINER_COMMAND), make_replica=barracks.make) as server:
            record_job(server.database, "ft-1", name="recorded")
            assert PATIENT.count("sleep") == 1
            job_id = submit(
                server,
                save_tiny_model(folder / "model"),
                functions=PATIENT,
                hyper_parameters={**HYPER, "n_epochs": 200},
            )
            yield Service(server, job_id)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def visitor(service: Service, browser: Browser, caplog: pytest.LogCaptureFixture) -> Iterator[Visitor]:
    """Signed in. Whatever a test does: no error in the page or the server, nothing asked elsewhere."""
    with visiting(browser, service.url) as made:
        made.sign_in(service.server.key)
        yield made
        check_quiet(made)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def check_quiet(visitor: Visitor) -> None:
    assert visitor.troubles == []
    elsewhere = {url for url in visitor.asked if not url.startswith((visitor.url, "data:"))}
    assert elsewhere == set()


def test_no_page_is_wider_than_a_phone(service: Service, browser: Browser):
    with visiting(browser, service.url, width=375) as visitor:
        visitor.sign_in(service.server.key)
        wide: dict[str, int] = {}
        for path in service.pages():
            visitor.open(path)
            width = visitor.page.evaluate("document.documentElement.scrollWidth")
            if width > 375:
                wide[path] = width
        assert wide == {}


def test_what_a_model_wrote_does_nothing(service: Service, visitor: Visitor):
    for path in service.pages():
        if "/ft-1" in path:
            visitor.open(path)
            assert visitor.page.evaluate("window.hacked") is None
    visitor.open(f"/console/jobs/ft-1/trajectories/{service.key('ft-1', '1-train-0-r0')}")
    expect(visitor.page.locator(".chat")).to_contain_text("<script>window.hacked = 1</script>")


def test_the_sign_in_link_of_the_first_start_opens_the_console(service: Service, browser: Browser):
    assert service.server.sign_in_link is not None
    with visiting(browser, service.url) as visitor:
        visitor.page.goto(service.server.sign_in_link)
        visitor.page.click("button.main")
        visitor.page.wait_for_url("**/console/jobs")
        check_quiet(visitor)


def test_the_keyboard_alone_reaches_the_content_and_a_job(service: Service, visitor: Visitor):
    page = visitor.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == "tiny":
            break
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/console/jobs/{service.job_id}")


def test_progress_and_curves_go_on_without_loading_the_page_again(service: Service, visitor: Visitor):
    page = visitor.page
    service.trains()
    visitor.open(f"/console/jobs/{service.job_id}/metrics")
    page.evaluate("window.stays = 1")
    step = page.locator(".progress .num").first
    before = step.inner_text()
    expect(step).not_to_have_text(before, timeout=60_000)
    shown = "echarts.getInstanceByDom(document.querySelector('.chart .canvas')).getOption().series"
    drawn = f"Math.max(...{shown}.flatMap((one) => one.data.map((point) => point[0])))"
    page.wait_for_selector(".chart canvas")
    first = page.evaluate(drawn)
    eventually(lambda: page.evaluate(drawn) > first)
    assert page.evaluate("window.stays") == 1


def test_charts_are_explained_zoomed_together_smoothed_and_overlaid(service: Service, visitor: Visitor):
    page = visitor.page
    service.trains()
    visitor.open("/console/jobs/ft-1/metrics")
    page.wait_for_selector(".chart:nth-child(2) canvas")
    page.fill("input[name=from]", "2")
    page.fill("input[name=to]", "3")
    page.keyboard.press("Tab")
    all_charts = "[...document.querySelectorAll('.canvas canvas')].map((one) => one.closest('.canvas'))"
    zooms = f"{all_charts}.map((one) => echarts.getInstanceByDom(one).getOption().dataZoom[0].startValue)"
    assert set(page.evaluate(zooms)) == {2}
    clipped = "echarts.getInstanceByDom(document.querySelector('[data-title=\"actor/pg_clipfrac\"] .canvas'))"
    scale = f"{clipped}.getModel().getComponent('yAxis').axis.scale.getExtent()"
    assert page.evaluate(scale) == [0, 1], "a share that never moves stands between 0 and 1"
    ids = (
        "echarts.getInstanceByDom(document.querySelector('.canvas')).getOption().series.map((one) => one.id)"
    )
    assert page.evaluate(ids) == ["band-0", "line-0"]
    page.evaluate("document.querySelector('input[name=smooth]').value = 0.6")
    page.locator("input[name=smooth]").dispatch_event("input", {"bubbles": True})
    assert "raw-0" in page.evaluate(ids)
    page.select_option("select[name=overlay]", service.job_id)
    eventually(lambda: "line-1" in page.evaluate(ids))
    expect(page.locator("#legend li")).to_have_count(2)
    page.locator(".about summary").first.click()
    expect(page.locator(".about p").first).to_be_visible()
    label = page.locator(".chart .canvas").first.get_attribute("aria-label")
    assert label == "critic/rewards: 0.3, step 3; 0.1 – 0.3"


def test_the_log_follows_what_the_job_prints(service: Service, visitor: Visitor):
    visitor.open(f"/console/jobs/{service.job_id}/logs?component=function:agent")
    visitor.page.locator("#log").evaluate("(log) => { log.innerHTML = ''; }")
    expect(visitor.page.locator("#log li").first).to_contain_text("rollout done", timeout=60_000)


def test_base_and_tuned_model_answer_the_same_question_side_by_side(service: Service, visitor: Visitor):
    page, server = visitor.page, service.server
    eventually(lambda: server.get(f"/fine-tunes/{service.job_id}/checkpoints")["checkpoints"], within_s=240)
    output = f"/console/jobs/{service.job_id}/output"
    visitor.open(output)
    page.locator("input[name=model_name]").first.fill("tiny-tuned")
    page.get_by_role("button", name="Publish").first.click()
    page.get_by_role("button", name="Deploy tiny", exact=True).click()
    page.get_by_role("button", name="Deploy tiny-tuned").click()
    eventually(lambda: all(one["ready_capacity"] for one in server.get("/deployments")["deployments"]))
    visitor.open(output)
    page.fill("#question", "hello?")
    page.get_by_role("button", name="Ask both").click()
    for side in ("base", "tuned"):
        expect(page.locator(f"[data-answer={side}]")).to_have_text("hello")


@pytest.mark.parametrize(("language", "dark"), [("en-GB", False), ("zh-CN", True)])
def test_every_page_is_whole_and_accessible_in_both_languages_while_a_job_trains(
    service: Service, browser: Browser, language: str, dark: bool
):
    service.trains()
    axe = Axe()
    with visiting(browser, service.url, language=language, dark=dark) as visitor:
        visitor.sign_in(service.server.key)
        faults: dict[str, list[str]] = {}
        for number, path in enumerate(service.pages()):
            visitor.open(path)
            expect(visitor.page.locator("h1").first).to_be_visible()
            assert visitor.page.evaluate("document.documentElement.lang")[:2] == language[:2]
            if dark and number % 4:  # the same markup in other colours
                continue
            found = axe.run(visitor.page, options=RULES).response["violations"]
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            if serious:
                faults[path] = [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in serious]
        assert faults == {}
        check_quiet(visitor)


def test_a_job_is_canceled_from_its_page_once_that_is_confirmed(service: Service, visitor: Visitor):
    """The last test: the job that the others watch ends here."""
    page = visitor.page
    visitor.open(f"/console/jobs/{service.job_id}")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    assert service.server.job(service.job_id)["status"] == "RUNNING"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".head .pill")).to_have_text("canceled", timeout=120_000)
