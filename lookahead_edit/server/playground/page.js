// Puts the page together: runs, compares, cancels.
const SAMPLE = `"""Counts the words of a text file."""

import re
from collections import Counter
from pathlib import Path

WORD = re.compile(r"[a-z']+")
MAX_WORDS = 20


def read_words(path):
    text = Path(path).read_text(encoding="utf-8")
    return WORD.findall(text.lower())


def count_words(path):
    words = read_words(path)
    return Counter(words)


def longest_word(path):
    words = read_words(path)
    return max(words, key=len)
`;
const REFRESH_MILLISECONDS = 5000;
const CLOCK_MILLISECONDS = 250;
const CANCEL_PATIENCE_MILLISECONDS = 1500;
const LOADING_PATIENCE_MILLISECONDS = 2000;

const answerView = new AnswerView();
const dashboard = new Dashboard();
let running = null; // {abort, isCancelled} while a request is under way

function numberOf(id) {
  const { value } = byId(id);
  return value === "" ? null : Number(value);
}

function requestBody(isSpeculating) {
  return {
    input: byId("file").value,
    instruction: byId("instruction").value,
    path: byId("path").value || null,
    output: ["text", "diff"],
    include: ["sources", "provenance"],
    speculation: { enabled: isSpeculating, max_draft: numberOf("max-draft") },
    temperature: numberOf("temperature"),
    seed: numberOf("seed"),
    max_tokens: numberOf("max-tokens"),
  };
}

function showError(error) {
  byId("error").hidden = !error;
  if (error instanceof ServerError) byId("error").textContent = `${error.message} (${error.code})`;
  else byId("error").textContent = error ? `The server can't be reached: ${error.message}` : "";
  if (error?.status === 401) byId("key").closest("details").open = true;
}

function setRunning(isRunning) {
  byId("run").disabled = byId("compare").disabled = isRunning;
  byId("cancel").disabled = !isRunning;
}

function say(text) {
  byId("state").textContent = text;
}

async function runOnce(isSpeculating) {
  answerView.clear();
  const answer = await streamEdit(requestBody(isSpeculating), {
    route: byId("route").value,
    signal: running.abort.signal,
    onEvent: (event) => answerView.take(event),
  });
  return { answer, seconds: answerView.seconds };
}

// Runs `work` with everything that goes with it: buttons, errors, the dashboard afterwards.
async function whileRunning(work) {
  if (running) return;
  running = { abort: new AbortController(), isCancelled: false };
  setRunning(true);
  showError(null);
  byId("comparison").hidden = true;
  byId("answer-title").scrollIntoView({ block: "nearest" });
  const clock = setInterval(() => answerView.drawSeconds(), CLOCK_MILLISECONDS);
  try {
    await work();
  } catch (error) {
    if (running.isCancelled) say("cancelled");
    else {
      say("failed");
      showError(error);
    }
  } finally {
    clearInterval(clock);
    running = null;
    setRunning(false);
    if (byId("route").value) dashboard.show(byId("route").value);
    refreshDashboard();
  }
}

function run() {
  return whileRunning(async () => {
    say("running …");
    const { answer } = await runOnce(byId("speculation").checked);
    say(answer.edit.truncated ? "cut off at the token limit" : answer.edit.changed ? "done" : "done, nothing changed");
  });
}

function compare() {
  return whileRunning(async () => {
    say("running without speculation …");
    const off = await runOnce(false);
    say("running with speculation …");
    const on = await runOnce(true);
    say("done");
    drawComparison(off, on);
  });
}

function drawComparison(off, on) {
  const figures = ({ answer, seconds }) => ({
    "seconds in all": shownSeconds(seconds),
    "tokens/s, prompt left out": shownNumber(answer.metrics.tokens_per_second),
    "tokens/round": shownNumber(answer.metrics.speculative_decoding.tokens_per_forward),
    tokens: shownCount(answer.usage.completion_tokens),
  });
  const [left, right] = [figures(off), figures(on)];
  byId("comparison-rows").replaceChildren(
    ...Object.keys(left).map((name) =>
      make("tr", {
        children: [make("th", { text: name }), make("td", { text: left[name] }), make("td", { text: right[name] })],
      }),
    ),
  );
  const isEqual = off.answer.choices[0].text === on.answer.choices[0].text;
  const times = shownNumber(off.seconds / on.seconds);
  const sameness = isEqual ? "the same text" : "not the same text";
  byId("comparison-verdict").textContent = `${times} times as fast, ${sameness}.`;
  byId("comparison").hidden = false;
}

// The server is asked by name, so that it says what became of the request; leaving ends it all the same.
async function cancel() {
  if (!running || running.isCancelled) return;
  const { abort } = running;
  running.isCancelled = true;
  say("cancelling …");
  setTimeout(() => abort.abort(), CANCEL_PATIENCE_MILLISECONDS);
  try {
    if (!answerView.id || !(await postCancel(answerView.id)).cancelled) abort.abort();
  } catch {
    abort.abort();
  }
}

async function refreshDashboard() {
  try {
    await dashboard.refresh();
  } catch (error) {
    if (!running && error.status === 401) showError(error);
  }
}

async function connect() {
  try {
    const [models, { version }] = await Promise.all([getJson("v1/models"), getJson("version")]);
    byId("server").textContent = `${models.data[0].id}, version ${version}`;
    showError(null);
  } catch (error) {
    const isLoading = error.code === "model_loading";
    byId("server").textContent = isLoading ? "loading the model …" : "not connected";
    showError(isLoading ? null : error);
    if (isLoading) setTimeout(connect, LOADING_PATIENCE_MILLISECONDS);
  }
  await refreshDashboard();
}

async function openFile(file) {
  if (!file) return;
  byId("file").value = await file.text();
  byId("path").value = file.name;
}

function selectTab(tab) {
  for (const other of document.querySelectorAll('[role="tab"]')) {
    const isSelected = other === tab;
    other.setAttribute("aria-selected", String(isSelected));
    other.tabIndex = isSelected ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !isSelected;
  }
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = Array.from(document.querySelectorAll('[role="tab"]'));
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  selectTab(next);
  next.focus();
  event.preventDefault();
}

byId("request").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
byId("compare").addEventListener("click", compare);
byId("cancel").addEventListener("click", cancel);
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(answerView.text);
  say("copied");
});
byId("key").addEventListener("change", connect);
byId("open").addEventListener("change", (event) => openFile(event.target.files[0]));
for (const tab of document.querySelectorAll('[role="tab"]')) {
  tab.addEventListener("click", () => selectTab(tab));
  tab.addEventListener("keydown", moveTab);
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") cancel();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  }
});
for (const name of ["dragover", "dragleave", "drop"]) {
  byId("drop").addEventListener(name, (event) => {
    event.preventDefault();
    byId("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") openFile(event.dataTransfer.files[0]);
  });
}

byId("copy").hidden = !navigator.clipboard; // there is none on a page of another machine without TLS
byId("file").value = SAMPLE;
byId("instruction").value = "Add a docstring to read_words: Returns the lower-case words of a file.";
connect();
setInterval(() => {
  if (!document.hidden) refreshDashboard();
}, REFRESH_MILLISECONDS);
