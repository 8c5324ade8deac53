// The answer's side of the page: what has come so far, and the whole once it is there.
class AnswerView {
  constructor() {
    this.clear();
  }

  clear() {
    this.counts = null;
    this.bySource = {};
    this.speeds = [];
    this.id = null;
    this.startedAt = performance.now();
    this.firstAt = null;
    this.lastAt = this.startedAt;
    this.firstTokens = 0;
    this.text = null;
    byId("stream").replaceChildren();
    byId("diff").replaceChildren();
    byId("kept").replaceChildren();
    byId("diff-hint").textContent = "The diff comes with the whole answer.";
    byId("kept-hint").textContent = "What stands word for word in the file comes with the whole answer.";
    byId("diff-hint").hidden = byId("kept-hint").hidden = false;
    byId("copy").disabled = true;
    for (const id of ["tokens", "speed", "per-round", "acceptance", "seconds"]) byId(id).textContent = "–";
    drawSpark(byId("spark"), []);
    this.drawLegend();
  }

  get seconds() {
    return (performance.now() - this.startedAt) / 1000;
  }

  drawSeconds() {
    byId("seconds").textContent = shownSeconds(this.seconds);
  }

  take(event) {
    if (event.type === "edit.created") this.id = event.id;
    if (event.type === "edit.delta") this.takeDelta(event);
    if (event.type === "edit.completed") this.takeWhole(event);
  }

  takeDelta(event) {
    const now = performance.now();
    const newTokens = event.counts.num_tokens - (this.counts?.num_tokens ?? 0);
    this.speeds.push((1000 * newTokens) / Math.max(1, now - this.lastAt));
    this.lastAt = now;
    if (this.firstAt === null) [this.firstAt, this.firstTokens] = [now, event.counts.num_tokens];
    this.counts = event.counts;
    this.append(event.sources);
    this.drawLive();
  }

  append(pieces) {
    const stream = byId("stream");
    const isAtEnd = stream.scrollHeight - stream.scrollTop - stream.clientHeight < 24;
    for (const { text, source } of pieces) {
      this.bySource[source] = (this.bySource[source] ?? 0) + text.length;
      const last = stream.lastElementChild;
      if (last?.className === source) last.textContent += text;
      else stream.append(make("span", { className: source, text, title: SOURCES[source] }));
    }
    if (isAtEnd) stream.scrollTop = stream.scrollHeight;
  }

  drawLive() {
    const { num_tokens: tokens, num_rounds: rounds, num_draft_tokens: drafted } = this.counts;
    const secondsSinceFirst = (this.lastAt - this.firstAt) / 1000;
    byId("tokens").textContent = shownCount(tokens);
    const speed = secondsSinceFirst > 0 ? (tokens - this.firstTokens) / secondsSinceFirst : null;
    byId("speed").textContent = shownNumber(speed);
    byId("per-round").textContent = shownNumber(tokens / rounds);
    byId("acceptance").textContent = shownRate(drafted ? this.counts.num_accepted_draft_tokens / drafted : null);
    this.drawSeconds();
    drawSpark(byId("spark"), this.speeds);
    this.drawLegend();
  }

  drawLegend() {
    const total = Object.values(this.bySource).reduce((sum, length) => sum + length, 0);
    const isShown = ([source]) => this.bySource[source] || (!total && source !== "model");
    const entries = Object.entries(SOURCES).filter(isShown);
    byId("legend").replaceChildren(
      ...entries.map(([source, meaning]) =>
        make("li", {
          children: [
            make("i", { className: source }),
            meaning,
            make("b", { text: total ? ` ${shownRate(this.bySource[source] / total)}` : "" }),
          ],
        }),
      ),
    );
  }

  takeWhole(answer) {
    const [choice] = answer.choices;
    const speculative = answer.metrics.speculative_decoding;
    this.text = choice.text;
    byId("copy").disabled = false;
    byId("tokens").textContent = shownCount(answer.usage.completion_tokens);
    byId("speed").textContent = shownNumber(answer.metrics.tokens_per_second);
    byId("per-round").textContent = shownNumber(speculative.tokens_per_forward);
    byId("acceptance").textContent = shownRate(speculative.draft_acceptance_rate);
    this.drawSeconds();
    this.drawDiff(answer, choice);
    this.drawKept(choice);
  }

  drawDiff(answer, choice) {
    const isWhole = choice.diff !== null;
    byId("diff-hint").hidden = isWhole && choice.diff !== "";
    byId("diff-hint").textContent = isWhole
      ? "Nothing was changed."
      : "The answer was cut off at the token limit: half a file has no diff.";
    drawDiff(byId("diff"), choice.diff ?? "");
    if (answer.warnings.length) byId("diff-hint").hidden = false;
    if (answer.warnings.length) byId("diff-hint").textContent += ` ${answer.warnings.join(" ")}`;
  }

  drawKept({ text, provenance }) {
    if (!provenance) return;
    const kept = byId("kept");
    let end = 0;
    for (const span of provenance.spans) {
      kept.append(text.slice(end, span.start));
      const title = `${span.source}, characters ${span.source_start} to ${span.source_end}`;
      kept.append(make("span", { className: "quote", text: text.slice(span.start, span.end), title }));
      end = span.end;
    }
    kept.append(text.slice(end));
    const number = provenance.spans.length;
    byId("kept-hint").textContent =
      `${shownRate(provenance.quoted_share)} of the text stands word for word in the request, ` +
      `in ${number} ${number === 1 ? "piece" : "pieces"} of ${provenance.min_words} words or more.`;
  }
}
