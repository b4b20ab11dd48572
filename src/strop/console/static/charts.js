// Figures of the page -> ECharts: drawn when they come into sight, zoomed together, smoothed, overlaid, followed live.
/* global echarts */
const tools = document.getElementById("chart-tools");
const PALETTE = ["#0f7a7e", "#c2571a", "#5b53b5", "#a8336b", "#3d7a1e", "#8a6d00"];
const DARK = ["#5cc4c4", "#f0955a", "#a9a3f2", "#f08bb8", "#94d06f", "#e3c34f"];
const LIVE_MS = 3000;
const [STEP, , , , NOTHING] = (tools?.dataset.words ?? "step|at step|from|to|no values").split("|");

const state = {
  jobs: [], // {id, label}
  zoom: null, // [from, to] in steps
  smooth: 0,
  last: 0,
};
const figures = new Map(); // figure -> {chart, data: Map(job -> curves), names}
let wanted = new Set();
let asking = null;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const colours = () => (isDark() ? DARK : PALETTE);
const option = (name, fallback) => (tools?.elements?.[name] ? tools.elements[name].checked : fallback);

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function smoothed(values, weight) {
  // Exponential moving average without the pull of its start, as TensorBoard's.
  let sum = 0, norm = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + (1 - weight) * value;
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

const pairs = (curve, values) => curve.steps.map((step, i) => [step, values[i]]);

function band(low, high, colour, id) {
  // Forth along the upper edge and back along the lower: what an area fills is then what lies between.
  const upper = pairs(high, high.high ?? high.mean), lower = pairs(low, low.low ?? low.mean);
  const loop = [...upper, ...lower.reverse()].filter(([, value]) => value !== null);
  return { type: "line", id: `band-${id}`, symbol: "none", silent: true, animation: false, lineStyle: { opacity: 0 }, areaStyle: { color: colour, opacity: 0.16 }, data: loop };
}

function series(figure, held) {
  const made = [];
  state.jobs.forEach((job, index) => {
    const curves = held.data.get(job.id);
    const main = curves?.[held.names[0]];
    if (!main) return;
    const colour = colours()[index % colours().length];
    const low = curves[figure.dataset.low] ?? main, high = curves[figure.dataset.high] ?? main;
    if (option("band", true) && state.jobs.length < 3 && (low !== main || high !== main || main.low))
      made.push(band(low, high, colour, index));
    const line = { type: "line", symbol: main.steps.length < 2 ? "circle" : "none", symbolSize: 5, animation: false, color: colour, connectNulls: false };
    if (state.smooth > 0) {
      made.push({ ...line, id: `raw-${index}`, silent: true, lineStyle: { width: 1, opacity: 0.25 }, data: pairs(main, main.mean) });
      made.push({ ...line, id: `line-${index}`, name: job.label, lineStyle: { width: 1.8 }, data: pairs(main, smoothed(main.mean, state.smooth)) });
    } else made.push({ ...line, id: `line-${index}`, name: job.label, lineStyle: { width: 1.6 }, data: pairs(main, main.mean) });
  });
  const first = made.find((one) => one.id === "line-0") ?? made[0];
  if (first) {
    const marks = [];
    const { healthyLow, healthyHigh } = figure.dataset;
    if (option("health", true) && (healthyLow !== undefined || healthyHigh !== undefined))
      marks.push([{ yAxis: healthyLow === undefined ? "min" : Number(healthyLow) }, { yAxis: healthyHigh === undefined ? "max" : Number(healthyHigh) }]);
    first.markArea = { silent: true, animation: false, itemStyle: { color: css("--good"), opacity: 0.09 }, data: marks };
    if (tools.dataset.mark) first.markLine = { silent: true, symbol: "none", animation: false, label: { show: false }, lineStyle: { color: css("--quiet"), type: "dashed" }, data: [{ xAxis: Number(tools.dataset.mark) }] };
  }
  return made;
}

function readout(items) {
  const lines = items.filter((one) => one.seriesId.startsWith("line-"));
  if (!lines.length) return "";
  const rows = lines.map((one) => `${lines.length > 1 ? `${one.seriesName}  ` : ""}${short(one.value[1])}`);
  return `${STEP} ${lines[0].value[0]}\n${rows.join("\n")}`;
}

// A share that never moves stands between 0 and 1, not in a range made up around it.
const LEVEL_SHARE = {
  min: ({ min, max }) => (min === max ? 0 : null),
  max: ({ min, max }) => (min === max ? 1 : null),
};

function draw(figure) {
  const held = figures.get(figure);
  const place = figure.querySelector(".canvas");
  const all = series(figure, held);
  if (!held.chart) {
    held.chart = echarts.init(place, null, { renderer: "canvas" });
    held.chart.on("datazoom", () => shareZoom(held.chart));
  }
  const axis = { axisLine: { show: false }, axisTick: { show: false }, axisLabel: { color: css("--quiet"), fontSize: 10, hideOverlap: true }, splitLine: { lineStyle: { color: css("--line"), width: 0.6 } } };
  held.chart.setOption(
    {
      animation: false,
      grid: { left: 6, right: 10, top: 10, bottom: 4, containLabel: true },
      xAxis: { ...axis, type: "value", min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false } },
      yAxis: { ...axis, type: "value", scale: true, ...(figure.dataset.unit === "share" ? LEVEL_SHARE : {}), axisLabel: { ...axis.axisLabel, formatter: short } },
      dataZoom: [{ type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, ...(state.zoom ? { startValue: state.zoom[0], endValue: state.zoom[1] } : { start: 0, end: 100 }) }],
      tooltip: { trigger: "axis", renderMode: "richText", confine: true, formatter: readout, backgroundColor: css("--card"), borderColor: css("--line"), textStyle: { color: css("--ink"), fontSize: 12 }, axisPointer: { lineStyle: { color: css("--quiet") } } },
      series: all,
    },
    { replaceMerge: ["series"] },
  );
  tell(figure, held);
}

function tell(figure, held) {
  const main = held.data.get(state.jobs[0].id)?.[held.names[0]];
  const values = main ? main.mean.filter((value) => value !== null) : [];
  const latest = figure.querySelector(".latest");
  const place = figure.querySelector(".canvas");
  place.setAttribute("role", "img");
  if (!values.length) {
    latest.value = NOTHING;
    place.setAttribute("aria-label", `${figure.dataset.title}: ${NOTHING}`);
    return;
  }
  const last = values[values.length - 1];
  latest.value = short(last);
  place.setAttribute("aria-label", `${figure.dataset.title}: ${short(last)}, ${STEP} ${main.steps[main.steps.length - 1]}; ${short(Math.min(...values))} – ${short(Math.max(...values))}`);
}

let sharing = false;
function shareZoom(chart) {
  if (sharing) return;
  const { startValue, endValue } = chart.getOption().dataZoom[0];
  setZoom([Math.round(startValue), Math.round(endValue)], chart);
}

function setZoom(range, except) {
  state.zoom = range;
  sharing = true;
  for (const { chart } of figures.values()) {
    if (!chart || chart === except) continue;
    chart.dispatchAction({ type: "dataZoom", ...(range ? { startValue: range[0], endValue: range[1] } : { start: 0, end: 100 }) });
  }
  sharing = false;
  if (tools.elements?.from && !tools.contains(document.activeElement)) {
    tools.elements.from.value = range ? range[0] : "";
    tools.elements.to.value = range ? range[1] : "";
  }
}

async function fetchCurves(job, names, since) {
  const url = new URL(tools.dataset.url, location.href);
  url.search = new URLSearchParams({ job, names: names.join(","), since: String(since) });
  const reply = await fetch(url, { headers: { accept: "application/json" } });
  if (!reply.ok) throw new Error(`curves of ${job}: ${reply.status}`);
  return reply.json();
}

function ask() {
  // One round for all figures that came into sight within a moment.
  asking ??= setTimeout(async () => {
    asking = null;
    const due = [...wanted];
    wanted = new Set();
    for (let start = 0; start < due.length; start += 16) await load(due.slice(start, start + 16), state.jobs);
  }, 30);
}

async function load(list, jobs) {
  const names = [...new Set(list.flatMap((figure) => figures.get(figure).names))];
  for (const job of jobs) {
    const told = await fetchCurves(job.id, names, 0);
    if (job === state.jobs[0]) state.last = Math.max(state.last, told.last);
    for (const figure of list) {
      const held = figures.get(figure);
      held.data.set(job.id, Object.fromEntries(held.names.filter((name) => told.curves[name]).map((name) => [name, told.curves[name]])));
    }
  }
  list.forEach(draw);
  performance.mark("drawn");
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const held = figures.get(target);
    held.inSight = isIntersecting;
    if (isIntersecting && !held.chart) {
      wanted.add(target);
      ask();
    }
  }
}, { rootMargin: "150px" });

const drawn = () => [...figures.keys()].filter((figure) => figures.get(figure).chart);
const redraw = () => drawn().forEach(draw);

function legend() {
  const list = document.getElementById("legend");
  if (!list) return;
  list.replaceChildren(...(state.jobs.length < 2 ? [] : state.jobs.map((job, index) => {
    const item = document.createElement("li");
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ width: 14, height: 4, y: 3, fill: colours()[index % colours().length] })) rect.setAttribute(name, value);
    mark.append(rect);
    mark.setAttribute("aria-hidden", "true");
    item.append(mark, job.label);
    if (index > 0 && tools.elements?.overlay) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "×";
      button.setAttribute("aria-label", `− ${job.label}`);
      button.addEventListener("click", () => { state.jobs = state.jobs.filter((one) => one !== job); legend(); redraw(); });
      item.append(button);
    }
    return item;
  })));
}

async function follow() {
  if (document.visibilityState !== "visible") return;
  const list = drawn().filter((figure) => figures.get(figure).inSight);
  const probe = list.length ? await fetchCurves(state.jobs[0].id, [figures.get(list[0]).names[0]], state.last).catch(() => null) : null;
  if (probe && probe.last > state.last) for (let start = 0; start < list.length; start += 16) await load(list.slice(start, start + 16), [state.jobs[0]]);
}

function begin() {
  const ids = tools.dataset.jobs.split(","), labels = tools.dataset.labels.split(",");
  state.jobs = ids.map((id, index) => ({ id, label: labels[index] ?? id }));
  for (const figure of document.querySelectorAll("figure.chart")) {
    figures.set(figure, { chart: null, data: new Map(), names: figure.dataset.names.split(","), inSight: false });
    seen.observe(figure);
  }
  legend();
  new ResizeObserver(() => { for (const { chart } of figures.values()) chart?.resize(); }).observe(document.getElementById("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (tools.dataset.live) setInterval(follow, LIVE_MS);
  if (!(tools instanceof HTMLFormElement)) return;
  tools.addEventListener("submit", (event) => event.preventDefault());
  tools.addEventListener("reset", () => setTimeout(() => { state.smooth = 0;  state.jobs = state.jobs.slice(0, tools.elements.overlay ? 1 : undefined); setZoom(null); find(""); legend(); redraw(); }));
  tools.addEventListener("input", (event) => {
    const { name, value } = event.target;
    if (name === "find") find(value);
    if (name === "smooth") { state.smooth = Number(value); redraw(); }
    if (name === "band" || name === "health") redraw();
  });
  tools.addEventListener("change", async (event) => {
    const { name } = event.target;
    if (name === "from" || name === "to") {
      const from = Number(tools.elements.from.value || 0), to = Math.min(Number(tools.elements.to.value || state.last), state.last);
      setZoom(from < to ? [from, to] : null);
    }
    if (name === "overlay" && event.target.value && !state.jobs.some((job) => job.id === event.target.value)) {
      const chosen = event.target.selectedOptions[0];
      state.jobs.push({ id: chosen.value, label: chosen.textContent });
      legend();
      for (let list = drawn(), start = 0; start < list.length; start += 16) await load(list.slice(start, start + 16), [state.jobs.at(-1)]);
      redraw();
      event.target.value = "";
    }
  });
}

function find(words) {
  const asked = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const figure of figures.keys()) figure.hidden = !asked.every((word) => figure.dataset.title.toLowerCase().includes(word));
  for (const group of document.querySelectorAll("details.group")) {
    const any = group.querySelector("figure.chart:not([hidden])");
    group.hidden = !any;
    if (asked.length && any) group.open = true;
  }
}

if (tools) begin();
