// The route's figures from GET /v1/stats, and the banner where acceptance has changed.
class Dashboard {
  constructor() {
    this.stats = null;
    byId("dashboard-route").addEventListener("change", () => this.draw());
  }

  async refresh() {
    this.stats = await getJson("v1/stats");
    this.offerRoutes();
    this.draw();
    this.drawDrift();
    const { num_requests_running: running, num_requests_waiting: waiting } = this.stats;
    byId("queue").textContent = `${running} running, ${waiting} waiting`;
  }

  show(route) {
    byId("dashboard-route").value = route;
    this.draw();
  }

  offerRoutes() {
    const names = this.stats.routes.map((route) => route.route);
    const offers = [
      [byId("dashboard-route"), names],
      [byId("route"), ["", ...names]],
    ];
    for (const [select, values] of offers) {
      if (Array.from(select.options, (option) => option.value).join("\n") === values.join("\n")) continue;
      const chosen = select.value;
      select.replaceChildren(
        ...values.map((value) => {
          const option = make("option", { text: value || "by path" });
          option.value = value;
          return option;
        }),
      );
      select.value = values.includes(chosen) ? chosen : values[0];
    }
  }

  draw() {
    const route = this.stats?.routes.find(({ route: name }) => name === byId("dashboard-route").value);
    if (!route) return;
    const { drift } = route;
    const tiles = {
      requests: shownCount(route.num_requests),
      tokens: shownCount(route.num_tokens),
      "tokens/s": shownNumber(route.tokens_per_second),
      "tokens/round": shownNumber(route.tokens_per_round),
      acceptance: shownRate(route.acceptance_rate),
      "wasted drafts": shownCount(route.num_wasted_draft_tokens),
      drift: drift.direction ?? (drift.reference_rate === null ? driftProgress(drift) : "none"),
    };
    byId("dashboard").replaceChildren(
      ...Object.entries(tiles).map(([name, value]) =>
        make("div", { children: [make("dt", { text: name }), make("dd", { text: value })] }),
      ),
    );
    drawSpark(byId("spark-acceptance"), route.recent.map((request) => request.acceptance_rate), 1);
    drawSpark(byId("spark-speed"), route.recent.map((request) => request.tokens_per_second));
    byId("by-source").replaceChildren(
      ...Object.entries(route.drafts_by_source).map(([source, { num_draft_tokens, num_accepted_draft_tokens }]) =>
        make("tr", {
          children: [
            make("th", { children: [make("i", { className: source }), source] }),
            make("td", { text: shownCount(num_draft_tokens) }),
            make("td", { text: `${shownRate(num_accepted_draft_tokens / num_draft_tokens)} accepted` }),
          ],
        }),
      ),
    );
  }

  drawDrift() {
    const drifting = this.stats.routes.filter(({ drift }) => drift.direction);
    byId("drift").hidden = !drifting.length;
    const lines = drifting.map(({ route, drift }) => {
      const verb = drift.direction === "drop" ? "fallen" : "risen";
      const [from, to] = [shownRate(drift.reference_rate), shownRate(drift.acceptance_rate)];
      return `Acceptance on route ${route} has ${verb} from ${from} to ${to}.`;
    });
    const text = lines.join(" ");
    if (byId("drift").textContent !== text) byId("drift").textContent = text;
  }
}

function driftProgress(drift) {
  return `learning ${drift.num_reference_requests}/${drift.num_reference_requests_needed}`;
}
