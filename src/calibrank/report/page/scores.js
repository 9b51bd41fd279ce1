const scoreText = (value) => Number(value.toPrecision(3)).toString();
const MINIMUM_ROWS_SHOWN = 20; // the observed rate of fewer rows is mostly noise

function drawScores() {
  const state = { method: data.main_method, axes: "linear" };
  const densities = figure(
    "density-figure",
    densityChart,
    "Bars: the scores of liked and other pairs, each summing to one. Lines: the densities " +
      "that the map implies. The further apart the two classes are, the more informative the scores; where " +
      "a line leaves its bars, the fitted family is wrong.",
    densityTable,
  );
  const maps = figure(
    "map-figure",
    (width) => mapChart(width, state),
    mapCaption(),
    () => mapTable(state.method),
  );
  const change = (name, chart) => (value) => {
    state[name] = value;
    chart.refresh();
  };
  const axisOptions = [["linear", "linear"], ["logit", "logit"]];
  const mapNames = Object.keys(data.map_curves.curves).map((name) => [name, name]);
  const left = el(
    "div",
    null,
    legend([["positive", "liked"], ["negative", "not liked"]]),
    densities,
  );
  const right = el(
    "div",
    null,
    el(
      "div",
      { class: "controls" },
      choose("Map", mapNames, state.method, change("method", maps)),
      switches("Axis", axisOptions, state.axes, change("axes", maps)),
    ),
    legend(mapLegend()),
    maps,
  );
  section(
    "scores",
    "Scores and the map",
    el("div", { class: "columns" }, left, right),
    el("div", { class: "facts", id: "parameters" }, mapFacts()),
  );
}

function binCentres() {
  const { edges } = data.scores;
  return edges.slice(1).map((edge, at) => (edge + edges[at]) / 2);
}

function scoreScale(left, right) {
  const { edges } = data.scores;
  return linearScale(edges[0], edges[edges.length - 1], left, right);
}

const binText = (at) =>
  `${scoreText(data.scores.edges[at])} to ${scoreText(data.scores.edges[at + 1])}`;

// ----- densities of the score by class -----
function densityChart(width) {
  const { edges, positive, negative, rows } = data.scores;
  const { positive_by_map: positiveLine, negative_by_map: negativeLine } = data.scores;
  const centres = binCentres();
  const [left, top, height] = [44, 20, 230];
  const label =
    "Histograms of the score for liked and other pairs, with fitted densities as lines. " +
    "The numbers follow below.";
  const chart = canvas(width, top + height + 46, label);
  const most = Math.max(...positive, ...negative, ...positiveLine, ...negativeLine);
  const x = scoreScale(left, width - 10);
  const y = linearScale(0, most * 1.05, top + height, top);
  const curve = (values, kind) => line(centres.map((at, bin) => [x(at), y(values[bin])]), kind);
  chart.append(axisY(y, left, width - 10, scoreText, "density", 4));
  chart.append(...bars(edges, negative, x, y, "negative"));
  chart.append(...bars(edges, positive, x, y, "positive"));
  chart.append(curve(negativeLine, "negative"), curve(positiveLine, "positive"));
  chart.append(axisX(x, top + height, scoreText, "score"));
  const points = centres.map((centre, at) => ({
    x: x(centre),
    y: y(Math.max(positive[at], negative[at])),
    lines: [
      `score ${binText(at)}`,
      `${count(rows[at])} rows`,
      `density: liked ${scoreText(positive[at])}, not liked ${scoreText(negative[at])}`,
    ],
  }));
  hover(chart, (px) => nearest(points, px));
  return chart;
}

function densityTable() {
  const shown = data.scores;
  const columns = [shown.positive, shown.negative, shown.positive_by_map, shown.negative_by_map];
  const rows = binCentres().map((_, at) => [
    binText(at),
    count(shown.rows[at]),
    ...columns.map((column) => scoreText(column[at])),
    percent(shown.observed.value[at]),
  ]);
  const headings = [
    "score", "rows", "liked", "not liked", "liked, by the map", "not liked, by the map",
    "observed rate",
  ];
  return table(headings, rows, "Densities by score", "dense");
}

// ----- the map from score to probability -----
function mapLegend() {
  const entries = [["primary", "map, with 95% interval"], ["observed", "observed rate"]];
  if (data.map_curves.levels.length) entries.push(["guide", "largest levels"]);
  if (data.sensitivity) entries.push(["sensitivity", "sensitivity band"]);
  return entries;
}

function mapCaption() {
  const { terms, levels } = data.map_curves;
  const average = terms.length
    ? "This map has terms of other columns: the line is the average map, without them. "
    : "";
  const dashed = levels.length
    ? `Dashed: the map in the largest levels, ${levels.map(({ name }) => name).join(", ")}. `
    : "";
  const caption =
    average + dashed +
    "The line turns a score into a probability; its band is the sampling error of the fit. " +
    "Points: the observed rate of pairs with about that score and its 95% interval, for bins " +
    `of at least ${MINIMUM_ROWS_SHOWN} rows. Dashed, when another method is selected: the map ` +
    "of this report.";
  if (!data.sensitivity) return caption;
  return (
    `${caption} Amber: the sensitivity band, over propensity models and exposure by user and ` +
    "preference that this biased log cannot tell apart. More data from the same log would not " +
    "narrow it."
  );
}

function mapChart(width, state) {
  const { scores, curves } = data.map_curves;
  const curve = curves[state.method];
  const sensitivity = state.method === data.main_method ? data.sensitivity : null;
  const observed = observedRates();
  const [left, top, height] = [52, 20, 300];
  const lowest = percent(curve.value[0]);
  const highest = percent(curve.value[curve.value.length - 1]);
  const label =
    `The map of ${state.method}: probability over the raw score, from ${lowest} to ${highest}, ` +
    "with its 95% interval. The numbers follow below.";
  const chart = canvas(width, top + height + 46, label);
  const x = scoreScale(left, width - 10);
  const y = probabilityScale(state.axes, [curve, sensitivity], observed, top + height, top);
  const place = (value) => y(clamp(value, ...y.domain));
  const along = (values) => scores.map((score, at) => [x(score), place(values[at])]);
  chart.append(axisY(y, left, width - 10, percent, "probability"));
  chart.append(band(along(curve.high), along(curve.low), "primary"));
  if (sensitivity) {
    chart.append(band(along(sensitivity.high), along(sensitivity.low), "sensitivity"));
  }
  for (const { centre, value, low, high } of observed) {
    const at = x(centre);
    const whisker = { x1: at, x2: at, y1: place(low), y2: place(high), class: "whisker" };
    chart.append(svg("line", whisker));
    chart.append(svg("circle", { cx: at, cy: place(value), r: 2.6, class: "dot observed" }));
  }
  if (state.method !== data.main_method) {
    chart.append(line(along(curves[data.main_method].value), "guide"));
  }
  if (state.method === data.main_method) {
    for (const { name, value } of data.map_curves.levels) {
      const guide = line(along(value), "guide");
      guide.append(svg("title", null, name));
      chart.append(guide);
    }
  }
  chart.append(line(along(curve.value), "primary"));
  chart.append(axisX(x, top + height, scoreText, "score"));
  const points = scores.map((score, at) => ({
    x: x(score),
    y: place(curve.value[at]),
    lines: [
      `score ${scoreText(score)}`,
      `probability ${percent(curve.value[at])}`,
      `95% interval ${interval(curve.low[at], curve.high[at], percent)}`,
    ],
  }));
  hover(chart, (px) => nearest(points, px));
  return chart;
}

function observedRates() {
  const { observed, rows } = data.scores;
  const rates = binCentres().map((centre, at) => ({
    centre,
    value: observed.value[at],
    low: observed.low[at],
    high: observed.high[at],
    rows: rows[at],
  }));
  return rates.filter((rate) => !isMissing(rate.value) && rate.rows >= MINIMUM_ROWS_SHOWN);
}

function probabilityScale(axes, curves, observed, bottom, top) {
  if (axes === "logit") return logitScale(0.001, 0.999, bottom, top);
  const highs = curves.flatMap((curve) => (curve ? curve.high : []));
  const most = 1.05 * Math.max(...highs, ...observed.map(({ value }) => value));
  return linearScale(0, clamp(most, 0.01, 1), bottom, top);
}

function mapTable(method) {
  const { scores, curves } = data.map_curves;
  const curve = curves[method];
  const rows = scores.map((score, at) => [
    scoreText(score),
    percent(curve.value[at]),
    interval(curve.low[at], curve.high[at], percent),
  ]);
  const everySixth = rows.filter((_, at) => at % 6 === 0);
  const headings = ["score", "probability", "95% interval"];
  return table(headings, everySixth, `The map of ${method}`, "dense");
}

// ----- what is known about the map, in words and tables -----
function mapFacts() {
  const about = data.parameters;
  const fit =
    `, fitted on ${count(about.rows)} rows with ${about.evidence} evidence and a base rate of ` +
    `${percent(about.rate)}. ${about.description}`;
  const facts = [el("p", null, el("b", null, about.method), fit)];
  if (about.parameters.length) facts.push(parameterTable(about.parameters));
  if (data.sensitivity) facts.push(...sensitivityFacts(data.sensitivity));
  return facts;
}

function parameterTable(parameters) {
  const rows = parameters.map(([name, value, error]) => [
    name,
    Number(value.toPrecision(6)).toString(),
    Number(error.toPrecision(2)).toString(),
  ]);
  const headings = ["parameter", "value", "standard error"];
  return table(headings, rows, "Parameters, in units of the score", "short");
}

function sensitivityFacts(sensitivity) {
  const rows = sensitivity.alternatives.map(([name, rate, topRate]) => [
    name,
    percent(rate),
    isMissing(topRate) ? "no finite fit" : percent(topRate),
  ]);
  // A known base rate leaves no range of them.
  const text = `${sensitivity.base_rates} Estimates under other propensity models:`.trim();
  const headings = ["propensity model", "base rate", "rate of the top 10%"];
  return [
    el("p", { id: "sensitivity" }, text),
    table(headings, rows, "Base rates under other propensity models", "short"),
  ];
}
