// Every page: times in the reader's own zone, questions before what cannot be undone.
const shown = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });

export function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const when = new Date(time.dateTime);
    if (time.dataset.local || Number.isNaN(when.valueOf())) continue;
    time.dataset.local = "1";
    time.title = time.textContent;
    time.textContent = shown.format(when);
  }
}

localTimes(document);
document.addEventListener("htmx:afterSwap", (event) => localTimes(event.target.parentElement ?? document));
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
