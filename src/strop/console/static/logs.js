// The log's tail: new lines come by server-sent events and go in as text, never as markup.
const KEPT = 3000;
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const clock = new Intl.DateTimeFormat(document.documentElement.lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function line({ time, component, level, text }) {
  const item = document.createElement("li");
  item.className = level;
  const when = document.createElement("time");
  when.dateTime = time;
  when.textContent = clock.format(new Date(time));
  const who = document.createElement("span");
  who.className = "component";
  who.textContent = component;
  item.append(when, who, text);
  return item;
}

if (log) {
  for (const time of log.querySelectorAll("time")) time.textContent = clock.format(new Date(time.dateTime));
  log.scrollTop = log.scrollHeight;
  if (log.dataset.stream) {
    const source = new EventSource(log.dataset.stream);
    source.addEventListener("message", ({ data }) => {
      log.append(...JSON.parse(data).map(line));
      while (log.childElementCount > KEPT) log.firstElementChild.remove();
      if (follow?.checked ?? true) log.scrollTop = log.scrollHeight;
    });
    source.addEventListener("end", () => source.close());
    addEventListener("pagehide", () => source.close());
  }
}
