// The metrics that most readers need come first; the others are in tables that open.
const FIRST_METRICS = [
  "LogLoss",
  "LogLossGain",
  "Brier",
  "SmoothECE",
  "CalibrationInTheLarge",
  "CalibrationSlope",
  "ECE@5",
];
// In pixels: what the column of names takes, and that of a metric with its interval.
const NAME_WIDTH = 150;
const METRIC_WIDTH = 120;
const NARROW_METRIC_WIDTH = 96; // the interval has two lines

function drawMethods() {
  const usable = data.methods.filter((method) => !method.error);
  const failed = data.methods.filter((method) => method.error);
  // Discrimination is about the order of the scores and listed with the ranking metrics.
  const all = Object.keys(usable[0].metrics).filter((name) => name !== "Discrimination");
  const first = FIRST_METRICS.filter((name) => all.includes(name));
  const names = [...first, ...all.filter((name) => !first.includes(name))];
  const best = Object.fromEntries(
    names.map((name) => [name, Math.min(...usable.map((one) => lossOf(one.metrics[name])))]),
  );
  const shown = el("div", null);
  const more = el("div", null);
  const details = el("details", null, el("summary", null, "More metrics"), more);
  let sorted = "LogLoss";
  let columns = 0;

  function metricTable(some) {
    const heads = some.map((name) => {
      const attributes = { "aria-describedby": `metric-${names.indexOf(name)}` };
      const button = explainedButton(metricTitle(name), metricExplanation(name), attributes);
      button.addEventListener("click", () => {
        sorted = name;
        draw();
        document.querySelector(`#methods th[data-metric="${name}"] button`).focus();
      });
      const direction = data.metrics[name].higher_is_better ? "descending" : "ascending";
      const sort = name === sorted ? direction : "none";
      return el("th", { scope: "col", "data-metric": name, "aria-sort": sort }, button);
    });
    const byLoss = (one, two) => lossOf(one.metrics[sorted]) - lossOf(two.metrics[sorted]);
    const rows = usable.slice().sort(byLoss).map((method) => methodRow(method, some, best));
    const failures = failed.map((method) => failedRow(method, some.length));
    const head = el("thead", null, el("tr", null, columnHead("method"), heads));
    return el("table", { class: "metrics" }, head, el("tbody", null, rows, failures));
  }

  function draw() {
    const tables = [];
    for (let at = 0; at < names.length; at += columns) {
      tables.push(metricTable(names.slice(at, at + columns)));
    }
    shown.replaceChildren(tables[0]);
    more.replaceChildren(...tables.slice(1));
    details.hidden = tables.length === 1;
  }

  // As many columns as fit beside the names: no table is cut.
  function fit() {
    const width = innerWidth < 704 ? NARROW_METRIC_WIDTH : METRIC_WIDTH;
    const fitting = Math.max(1, Math.floor((shown.clientWidth - NAME_WIDTH) / width));
    if (fitting === columns) return;
    columns = fitting;
    draw();
  }

  section(
    "methods",
    "Methods and metrics",
    el(
      "p",
      { class: "small" },
      "Metrics of every method, with 95% intervals. The best value of a column is bold; the row " +
        "of this report's map is tinted. Select a heading to sort by it.",
    ),
    shown,
    details,
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
  drawings.push({ redraw: fit, resize: fit });
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
