// Talks to the server: JSON, and edits as a stream of events.
class ServerError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? String(status);
  }
}

function headers(extra = {}) {
  const key = byId("key").value;
  return key ? { authorization: `Bearer ${key}`, ...extra } : extra;
}

async function readAnswer(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ServerError(response.status, body?.error);
  return body;
}

async function getJson(path) {
  return readAnswer(await fetch(path, { headers: headers() }));
}

async function postCancel(id) {
  const path = `v1/requests/${encodeURIComponent(id)}/cancel`;
  return readAnswer(await fetch(path, { method: "POST", headers: headers() }));
}

async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const frames = rest.split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      if (frame.startsWith("data: ") && frame !== "data: [DONE]") yield JSON.parse(frame.slice("data: ".length));
    }
  }
}

// Calls onEvent for each event of the stream; returns the completed answer, and throws what went wrong instead.
async function streamEdit(body, { route, signal, onEvent }) {
  const extra = { "content-type": "application/json" };
  if (route) extra["x-lookahead-route"] = route;
  const response = await fetch("v1/edits", {
    method: "POST",
    headers: headers(extra),
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  if (!response.ok) await readAnswer(response);
  for await (const event of readEvents(response.body)) {
    if (event.error) throw new ServerError(200, event.error);
    onEvent(event);
    if (event.type === "edit.completed") return event;
  }
  throw new ServerError(200, { code: "incomplete", message: "the connection ended before the answer was whole" });
}
