// One question to two deployed models; both answers come in as they are made, as text.
const place = document.querySelector(".answers[data-ask]");
const form = document.getElementById("ask");
const [ASKING, NOTHING, FAILED] = place?.dataset.words.split("|") ?? [];
let example = null; // the whole conversation that the question stands for, until it is edited

async function answer(model, body, box) {
  box.textContent = ASKING;
  const began = performance.now();
  const reply = await fetch(place.dataset.ask, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf-token": place.dataset.csrf },
    body: JSON.stringify({ ...body, model, stream: true }),
  });
  if (!reply.ok) {
    const told = await reply.json().catch(() => ({}));
    throw new Error(told.error?.message ?? `${FAILED} (${reply.status})`);
  }
  let text = "", rest = "";
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const chunk = JSON.parse(event.slice(6));
      if (chunk.error) throw new Error(chunk.error.message);
      text += chunk.choices?.[0]?.delta?.content ?? "";
      box.textContent = text;
    }
  }
  box.textContent = text || NOTHING;
  box.title = `${((performance.now() - began) / 1000).toFixed(1)} s`;
}

function messages() {
  const asked = form.elements.question.value;
  return example && example.at(-1).content === asked ? example : [{ role: "user", content: asked }];
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = { messages: messages(), temperature: Number(form.elements.temperature.value), max_tokens: Number(form.elements.max_tokens.value) };
  const button = form.querySelector("button.main");
  button.disabled = true;
  await Promise.all([...place.querySelectorAll("select[data-side]")].map(async (select) => {
    const box = place.querySelector(`[data-answer="${select.dataset.side}"]`);
    try {
      await answer(select.value, body, box);
    } catch (error) {
      box.textContent = `${FAILED}: ${error.message}`;
    }
  }));
  button.disabled = false;
});

document.getElementById("example")?.addEventListener("click", async () => {
  const reply = await fetch(place.dataset.prompt, { headers: { accept: "application/json" } });
  const told = await reply.json();
  if (!told.messages.length) return;
  example = told.messages;
  form.elements.question.value = example.at(-1).content;
});
