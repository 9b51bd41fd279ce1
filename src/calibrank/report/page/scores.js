const scoreText = (value) => Number(value.toPrecision(3)).toString();
const MINIMUM_ROWS_SHOWN = 20; // the observed rate of fewer rows is mostly noise

function drawScores() {
  const state = { axes: "linear" };
  const densities = figure(
    "density-figure",
    densityChart,
    "The scores of liked and other pairs, each summing to one. The further apart the two classes " +
      "are, the more informative the scores.",
    densityTable,
  );
  const map = figure("map-figure", (width) => mapChart(width, state), mapCaption(), mapTable);
  const changeAxis = (value) => {
    state.axes = value;
    map.refresh();
  };
  const axisOptions = [["linear", "linear"], ["logit", "logit"]];
  const classes = [["positive", "liked"], ["negative", "not liked"]];
  const marks = [["primary", "map, with 95% interval"], ["observed", "observed rate"]];
  const control = switches("Axis", axisOptions, state.axes, changeAxis);
  section(
    "scores",
    "Scores and the map",
    el(
      "div",
      { class: "columns" },
      el("div", null, legend(classes), densities),
      el("div", null, el("div", { class: "controls" }, control), legend(marks), map),
    ),
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
  const centres = binCentres();
  const [left, top, height] = [44, 20, 230];
  const label =
    "Histograms of the score for liked and other pairs. The numbers follow below.";
  const chart = canvas(width, top + height + 46, label);
  const most = Math.max(...positive, ...negative);
  const x = scoreScale(left, width - 10);
  const y = linearScale(0, most * 1.05, top + height, top);
  chart.append(axisY(y, left, width - 10, scoreText, "density", 4));
  chart.append(...bars(edges, negative, x, y, "negative"));
  chart.append(...bars(edges, positive, x, y, "positive"));
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
  const columns = [shown.positive, shown.negative];
  const rows = binCentres().map((_, at) => [
    binText(at),
    count(shown.rows[at]),
    ...columns.map((column) => scoreText(column[at])),
    percent(shown.observed.value[at]),
  ]);
  const headings = ["score", "rows", "liked", "not liked", "observed rate"];
  return table(headings, rows, "Densities by score", "dense");
}

// ----- the map from score to probability -----
function mapCaption() {
  const average = data.map_curve.terms.length
    ? "This map has terms of other columns: the line is the average map, without them. "
    : "";
  return (
    average +
    "The line turns a score into a probability; its band is the sampling error of the fit. " +
    "Points: the observed rate of pairs with about that score and its 95% interval, for bins " +
    `of at least ${MINIMUM_ROWS_SHOWN} rows.`
  );
}

function mapChart(width, state) {
  const { scores, value, low, high } = data.map_curve;
  const observed = observedRates();
  const [left, top, height] = [52, 20, 230];
  const label = "The map from score to probability. The numbers follow below.";
  const chart = canvas(width, top + height + 46, label);
  const x = scoreScale(left, width - 10);
  const y = probabilityScale(state.axes, high, observed, top + height, top);
  const [from, to] = y.domain;
  const place = (probability) => y(clamp(probability, from, to));
  const along = (column) => column.map((probability, at) => [x(scores[at]), place(probability)]);
  chart.append(axisY(y, left, width - 10, percent, "probability"));
  chart.append(band(along(high), along(low), "primary"));
  for (const rate of observed) {
    const at = x(rate.centre);
    const ends = { y1: place(rate.low), y2: place(rate.high) };
    chart.append(svg("line", { x1: at, x2: at, ...ends, class: "whisker" }));
    chart.append(svg("circle", { cx: at, cy: place(rate.value), r: 2.6, class: "dot observed" }));
  }
  chart.append(line(along(value), "primary"));
  chart.append(axisX(x, top + height, scoreText, "score"));
  const points = scores.map((score, at) => ({
    x: x(score),
    y: place(value[at]),
    lines: [
      `score ${scoreText(score)}`,
      `probability ${percent(value[at])}`,
      `95% interval ${interval(low[at], high[at], percent)}`,
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

function probabilityScale(axes, highs, observed, bottom, top) {
  if (axes === "logit") return logitScale(0.001, 0.999, bottom, top);
  const most = 1.05 * Math.max(...highs, ...observed.map(({ value }) => value));
  return linearScale(0, clamp(most, 0.01, 1), bottom, top);
}

function mapTable() {
  const { scores, value, low, high } = data.map_curve;
  const rows = scores.map((score, at) => [
    scoreText(score),
    percent(value[at]),
    interval(low[at], high[at], percent),
  ]);
  const everySixth = rows.filter((_, at) => at % 6 === 0);
  return table(["score", "probability", "95% interval"], everySixth, "The map", "dense");
}

// ----- what is known about the map, in words and tables -----
function mapFacts() {
  const about = data.parameters;
  const fit =
    `, fitted on ${count(about.rows)} rows with ${about.evidence} evidence and a base rate of ` +
    `${percent(about.rate)}. ${about.description}`;
  const facts = [el("p", null, el("b", null, about.method), fit)];
  if (about.parameters.length) facts.push(parameterTable(about.parameters));
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
