// The page of a reproduction: methods in rows, models in columns, one metric at a time.
const EVIDENCE_TITLES = { ips: "UERM", naive: "naive", positive_ips: "positives only" };
const BAR_STEP = 24;

const unique = (values) => [...new Set(values)];
const plusMinus = (half) => (isMissing(half) ? "" : `± ${metricNumber(half)}`);
const metricNumber = (value) => digits(value, 4);

function drawResults() {
  const state = { protocol: Object.keys(data.protocols)[0], metric: null, model: null };
  const controls = el("div", { class: "controls" });
  const tableHolder = el("div", { id: "results-table" });
  const explanation = el("p", { class: "small", id: "metric-explanation" });
  const caption =
    "Bars: means over seeds. Thin lines: 95% intervals. Vertical marks: published numbers.";
  const chart = figure("results-figure", (width) => resultsChart(width, state), caption);

  function update() {
    explanation.textContent = metricExplanation(state.metric);
    tableHolder.replaceChildren(resultsTable(state));
    chart.redraw();
  }

  const change = (name) => (value) => {
    state[name] = value;
    update();
  };

  function rebuildControls() {
    const { cells } = data.protocols[state.protocol];
    const order = Object.keys(data.metrics);
    const metrics = unique(cells.map((cell) => cell.metric));
    metrics.sort((one, two) => order.indexOf(one) - order.indexOf(two));
    const models = unique(cells.map((cell) => cell.model)).sort();
    if (!metrics.includes(state.metric)) {
      state.metric = metrics.includes("ECE") ? "ECE" : metrics[0];
    }
    if (!models.includes(state.model)) [state.model] = models;
    const protocols = Object.keys(data.protocols).map((name) => [name, name]);
    const metricOptions = metrics.map((name) => [name, metricTitle(name)]);
    const modelOptions = models.map((name) => [name, name]);
    controls.replaceChildren(
      choose("Protocol", protocols, state.protocol, (value) => {
        state.protocol = value;
        rebuildControls();
        update();
      }),
      choose("Metric", metricOptions, state.metric, change("metric")),
      choose("Model in the chart", modelOptions, state.model, change("model")),
    );
  }

  rebuildControls();
  const chartLegend = legend([["primary", "mean over seeds"], ["published", "published"]]);
  const diagram = el(
    "div",
    { class: "diagram" },
    tableHolder,
    el("div", null, chartLegend, chart),
  );
  section("results", "Results", controls, explanation, diagram);
  drawResultsProvenance();
  return update;
}

// Methods as rows with one cell per model, the method with the lowest mean loss first.
function resultRows(state) {
  const { cells: all } = data.protocols[state.protocol];
  const cells = all.filter((cell) => cell.metric === state.metric);
  const models = unique(cells.map((cell) => cell.model)).sort();
  const rows = unique(cells.map(methodTitle)).map((title) => {
    const own = cells.filter((cell) => methodTitle(cell) === title);
    const losses = own.map(lossOf);
    return {
      title,
      cells: models.map((model) => own.find((cell) => cell.model === model)),
      meanLoss: losses.reduce((sum, loss) => sum + loss, 0) / losses.length,
    };
  });
  rows.sort((one, two) => one.meanLoss - two.meanLoss);
  return { models, rows };
}

function methodTitle({ method, evidence }) {
  if (method === "") return "the ranking";
  if (evidence === "none" || evidence === "") return method;
  return `${method}, ${EVIDENCE_TITLES[evidence] || evidence}`;
}

function resultsTable(state) {
  const { models, rows } = resultRows(state);
  const best = models.map((_, at) =>
    Math.min(...rows.map(({ cells }) => (cells[at] ? lossOf(cells[at]) : Infinity))),
  );
  const body = rows.map(({ title, cells }) => {
    const columns = cells.map((cell, at) => resultCell(cell, best[at]));
    return el("tr", null, rowHead(title), columns);
  });
  const caption =
    "Mean over seeds ± half the width of its 95% interval, and below it the published number if " +
    "there is one. The best value of a column is bold; rows are sorted by their mean.";
  const head = el("tr", null, columnHead("method"), models.map(columnHead));
  return scrollable(
    "Means over seeds",
    el(
      "table",
      { class: "metrics" },
      el("caption", null, caption),
      el("thead", null, head),
      el("tbody", null, body),
    ),
  );
}

function resultCell(cell, best) {
  if (!cell) return el("td", null, "–");
  const { mean, half_width: half, seeds, published } = cell;
  return el(
    "td",
    { class: lossOf(cell) === best ? "best" : null, title: `${seeds} seeds` },
    el("span", { class: "value" }, metricNumber(mean)),
    el("span", { class: "interval" }, plusMinus(half)),
    isMissing(published)
      ? null
      : el("span", { class: "interval published" }, `paper ${metricNumber(published)}`),
  );
}

function resultsChart(width, state) {
  const { models, rows } = resultRows(state);
  const at = Math.max(0, models.indexOf(state.model));
  const shown = rows.filter(({ cells }) => cells[at]);
  const ends = shown.flatMap(({ cells }) => {
    const { mean, half_width: half, published } = cells[at];
    return [mean + (half || 0), published || 0];
  });
  const left = Math.min(165, width * 0.48);
  const top = 8;
  const height = top + shown.length * BAR_STEP;
  const x = linearScale(0, 1.05 * Math.max(...ends), left, width - 14);
  const title = metricTitle(state.metric);
  const label =
    `${title} of ${models[at]} by method, with 95% intervals and published numbers. ` +
    "The table contains the numbers.";
  const chart = canvas(width, height + 42, label);
  const points = shown.map(({ title: method, cells }, place) =>
    drawResultBar(chart, method, cells[at], x, left, top + place * BAR_STEP),
  );
  chart.append(axisX(x, height, String, title));
  // Only the row counts, so every point is moved to the pointer's x.
  const inRow = (px) => points.map((point) => ({ ...point, x: px }));
  hover(chart, (px, py) => nearest(inRow(px), px, py));
  return chart;
}

// Draw one bar with its interval and published number; return its point for the tooltip.
function drawResultBar(chart, method, cell, x, left, y) {
  const { mean, half_width: half, seeds, published } = cell;
  const middle = y + 11;
  chart.append(svg("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, method));
  const barWidth = Math.max(0, x(mean) - left);
  const bar = { x: left, y: y + 4, width: barWidth, height: BAR_STEP - 9, class: "bar primary" };
  chart.append(svg("rect", bar));
  if (!isMissing(half)) {
    const from = x(Math.max(0, mean - half));
    const to = x(mean + half);
    chart.append(svg("line", { x1: from, x2: to, y1: middle, y2: middle, class: "cursor" }));
  }
  if (!isMissing(published)) {
    const at = x(published);
    const mark = { x1: at, x2: at, y1: y + 1, y2: y + BAR_STEP - 2, class: "published-mark" };
    chart.append(svg("line", mark));
  }
  const paper = isMissing(published) ? "not in the paper" : `paper ${metricNumber(published)}`;
  const lines = [method, `${metricNumber(mean)} ${plusMinus(half)}, ${seeds} seeds`, paper];
  return { x: x(mean), y: middle, lines };
}

function drawResultsProvenance() {
  const failed = data.failed
    ? ` ${count(data.failed)} fits have no finite optimum; their rows state the reason.`
    : "";
  const entries = [
    ["Rows", `${count(data.rows)} in ${data.source}.${failed}`],
    ["Rows written by", data.made_by.join("; ")],
    ["Published numbers", data.published || "none given"],
    ["Versions", versionsText(data.versions)],
    ["Command", el("code", null, data.command)],
  ];
  section("provenance", "Provenance", definitions(entries));
}
