function drawMethods() {
  const usable = data.methods.filter((method) => !method.error);
  const failed = data.methods.filter((method) => method.error);
  // Discrimination is about the order of the scores and listed with the ranking metrics.
  const names = Object.keys(usable[0].metrics).filter((name) => name !== "Discrimination");
  const best = Object.fromEntries(
    names.map((name) => [name, Math.min(...usable.map((one) => lossOf(one.metrics[name])))]),
  );
  const body = el("tbody", null);
  const heads = names.map((name, at) => {
    const attributes = { "aria-describedby": `metric-${at}` };
    const button = explainedButton(metricTitle(name), metricExplanation(name), attributes);
    button.addEventListener("click", () => sortBy(name));
    return el("th", { scope: "col", "data-metric": name }, button);
  });

  function sortBy(name) {
    const direction = data.metrics[name].higher_is_better ? "descending" : "ascending";
    for (const head of heads) {
      head.setAttribute("aria-sort", head.dataset.metric === name ? direction : "none");
    }
    const byLoss = (one, two) => lossOf(one.metrics[name]) - lossOf(two.metrics[name]);
    const rows = usable.slice().sort(byLoss).map((method) => methodRow(method, names, best));
    body.replaceChildren(...rows, ...failed.map((method) => failedRow(method, names.length)));
  }

  sortBy("LogLoss");
  const caption =
    "Metrics of every method, with 95% intervals. The best value of a column is bold; the row " +
    "of this report's map is tinted. Select a heading to sort by it.";
  const headRow = el("tr", null, columnHead("method"), heads);
  const metricTable = el(
    "table",
    { class: "metrics" },
    el("caption", null, caption),
    el("thead", null, headRow),
    body,
  );
  section(
    "methods",
    "Methods and metrics",
    scrollable("Metrics of every method", metricTable),
    el("p", { class: "after-table" }, "Ranking quality, which no strictly increasing map changes:"),
    rankingList(usable[0]),
    el(
      "p",
      { class: "small" },
      "An interval shows how much a metric would vary with another sample of users. All methods " +
        "are evaluated on the same users, so two methods can differ significantly even where " +
        "their intervals overlap.",
    ),
    explanationList(names),
  );
}

const SHOWN_DIGITS = 4;
const metricText = (value) => digits(value, SHOWN_DIGITS);

function methodRow(method, names, best) {
  const cells = names.map((name) => {
    const estimate = method.metrics[name];
    const { value, low, high } = estimate;
    // Values that look equal at the digits shown are equally good.
    const isBest = lossOf(estimate) - best[name] < 0.5 * 10 ** -SHOWN_DIGITS;
    return el(
      "td",
      { class: isBest ? "best" : null, "data-metric": name },
      el("span", { class: "value" }, metricText(value)),
      el("span", { class: "interval" }, interval(low, high, metricText)),
    );
  });
  const classes = method.name === data.main_method ? "main" : null;
  return el("tr", { class: classes, "data-method": method.name }, rowHead(method.name), cells);
}

function failedRow(method, columns) {
  const reason = el("td", { colspan: columns }, `No fit: ${method.error}`);
  return el("tr", { class: "failed" }, rowHead(method.name), reason);
}

function rankingList(method) {
  const estimates = { ...data.ranking, Discrimination: method.metrics.Discrimination };
  const items = Object.entries(estimates).map(([name, { value, low, high }]) => {
    const range = isMissing(low) ? "" : ` (${interval(low, high, metricText)})`;
    const button = explainedButton(metricTitle(name), metricExplanation(name));
    return el("li", null, button, ` ${metricText(value)}${range}`);
  });
  return el("ul", { class: "plainlist" }, items);
}

function explanationList(names) {
  const items = names.flatMap((name, at) => [
    el("dt", null, metricTitle(name)),
    el("dd", { id: `metric-${at}` }, metricExplanation(name)),
  ]);
  const summary = el("summary", null, "What the metrics mean");
  return el("details", { class: "meanings" }, summary, el("dl", null, items));
}
