// The metrics that most readers need come first; the others are in a table that opens.
const FIRST_METRICS = [
  "LogLoss",
  "LogLossGain",
  "Brier",
  "SmoothECE",
  "CalibrationInTheLarge",
  "CalibrationSlope",
  "ECE@5",
];

function drawMetrics() {
  const names = Object.keys(data.estimates);
  const first = FIRST_METRICS.filter((name) => names.includes(name));
  const others = names.filter((name) => !first.includes(name));
  const introduction =
    "With 95% intervals: how much a metric would vary with another sample of users.";
  section(
    "metrics",
    "Metrics",
    el("p", { class: "small" }, introduction),
    metricTable("Metrics", first),
    el("details", null, el("summary", null, "More metrics"), metricTable("More metrics", others)),
  );
}

function metricTable(caption, names) {
  const rows = names.map((name) => {
    const { value, low, high } = data.estimates[name];
    return el(
      "tr",
      { "data-metric": name },
      rowHead(metricTitle(name)),
      el(
        "td",
        null,
        el("span", { class: "value" }, digits(value, 4)),
        el("span", { class: "interval" }, interval(low, high, (end) => digits(end, 4))),
      ),
      el("td", { class: "meaning" }, metricExplanation(name)),
    );
  });
  const head = el("tr", null, ["metric", "value", "meaning"].map(columnHead));
  return el(
    "table",
    { class: "metrics" },
    el("caption", null, caption),
    el("thead", null, head),
    el("tbody", null, rows),
  );
}
