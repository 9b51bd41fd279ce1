const LOGIT_LIMITS = [0.0005, 0.9995];

function drawReliability() {
  const state = { axes: "linear", binning: "mass", range: "data" };
  const caption =
    "On the dashed line the observed rate equals the prediction. Points above it were " +
    "predicted too low, points below it too high; where the band contains the line, chance " +
    "explains the gap. Below: the number of rows by predicted probability.";
  const draw = (width) => reliabilityChart(width, state);
  const chart = figure("reliability-figure", draw, caption, makeTable);
  const change = (name) => (value) => {
    state[name] = value;
    chart.refresh();
  };

  function makeTable() {
    const rows = curvePoints(data.curves[state.binning]).map((point) => [
      percent(point.predicted),
      percent(point.observed),
      interval(point.low, point.high, percent),
      count(point.rows),
    ]);
    const headings = ["predicted", "observed", "95% interval", "rows"];
    return table(headings, rows, "Reliability by bin", "dense");
  }

  const axesOptions = [["linear", "linear"], ["logit", "logit"]];
  const rangeOptions = [["data", "predictions"], ["all", "0 to 100%"]];
  const binOptions = [["mass", "equal mass"], ["width", "equal width"]];
  const controls = el(
    "div",
    { class: "controls" },
    switches("Axes", axesOptions, state.axes, change("axes")),
    switches("Range", rangeOptions, state.range, change("range")),
    switches("Bins", binOptions, state.binning, change("binning")),
  );
  const entries = [["primary", "observed, with 95% interval"], ["guide", "perfect calibration"]];
  section("reliability", "Reliability", controls, legend(entries), chart);
}

// The columns of a curve as one object per bin.
function curvePoints(curve) {
  return curve.predicted.map((predicted, at) => ({
    predicted,
    observed: curve.observed[at],
    low: curve.low[at],
    high: curve.high[at],
    rows: curve.rows[at],
  }));
}

function reliabilityDomain(curve, state) {
  if (state.axes === "logit") {
    if (state.range === "all") return LOGIT_LIMITS;
    const least = Math.min(...curve.predicted.filter((value) => value > 0));
    const most = Math.max(...curve.predicted.filter((value) => value < 1));
    const low = Math.min(least / 2, 0.05);
    const high = Math.max(1 - (1 - most) / 2, 0.5);
    return [Math.max(LOGIT_LIMITS[0], low), Math.min(LOGIT_LIMITS[1], high)];
  }
  if (state.range === "all") return [0, 1];
  const ends = curve.high.map((value) => Math.min(value, 1));
  return [0, Math.min(1, 1.08 * Math.max(...curve.predicted, ...ends))];
}

function reliabilityChart(width, state) {
  const curve = data.curves[state.binning];
  const [from, to] = reliabilityDomain(curve, state);
  const left = 52;
  const top = 20;
  const side = Math.min(width - left - 12, 520);
  const histogramTop = top + side + 30;
  const histogramHeight = 90;
  const makeScale = state.axes === "logit" ? logitScale : linearScale;
  const x = makeScale(from, to, left, left + side);
  const y = makeScale(from, to, top + side, top);
  const label =
    "Reliability diagram: predicted probability against observed rate in " +
    `${curve.predicted.length} bins, with a 95% interval. The numbers follow below.`;
  const chart = canvas(width, histogramTop + histogramHeight + 44, label);
  chart.append(axisY(y, left, left + side, percent, "observed rate"));
  chart.append(line([[x(from), y(from)], [x(to), y(to)]], "guide"));
  const points = drawCurve(chart, curve, x, y);
  drawPredictionHistogram(chart, x, state.axes, histogramTop, histogramHeight);
  chart.append(axisX(x, histogramTop + histogramHeight, percent, "predicted probability"));
  hover(chart, (px, py) => nearest(points, px, py));
  return chart;
}

// Draw the curve and return its points for the tooltip.
function drawCurve(chart, curve, x, y) {
  const [from, to] = y.domain;
  const limit = to * 1.0001; // rounding must not drop the last bin
  const place = (value) => y(clamp(value, from, to));
  const shown = curvePoints(curve).filter(({ predicted }) => predicted <= limit);
  const upper = shown.map(({ predicted, high }) => [x(predicted), place(high)]);
  const lower = shown.map(({ predicted, low }) => [x(predicted), place(low)]);
  chart.append(band(upper, lower, "primary"));
  const places = shown.map(({ predicted, observed }) => [x(predicted), place(observed)]);
  chart.append(line(places, "primary"));
  return shown.map((point, at) => {
    const [px, py] = places[at];
    chart.append(svg("circle", { cx: px, cy: py, r: 4, class: "dot primary" }));
    const range = interval(point.low, point.high, percent);
    const lines = [
      `predicted ${percent(point.predicted)}`,
      `observed ${percent(point.observed)} (${range})`,
      `${count(point.rows)} rows`,
    ];
    return { x: px, y: py, lines };
  });
}

function drawPredictionHistogram(chart, x, axes, top, height) {
  const [from, to] = x.domain;
  const { bins, log_odds_limit: limit } = data.histogram;
  const edgeAt = (at) =>
    axes === "logit" ? expit(-limit + (2 * limit * at) / bins) : at / bins;
  const all = Array.from({ length: bins + 1 }, (_, at) => edgeAt(at));
  const rows = data.histogram[axes].filter((_, at) => all[at + 1] > from && all[at] < to);
  const first = all.findIndex((_, at) => all[at + 1] > from);
  const edges = all.slice(first, first + rows.length + 1).map((edge) => clamp(edge, from, to));
  const most = Math.max(...rows);
  const y = linearScale(0, Math.max(most, 1), top + height, top + 8);
  const title = `rows, at most ${count(most)} per bin`;
  chart.append(svg("text", { x: 2, y: top + 2, class: "axis title" }, title));
  chart.append(...bars(edges, rows, x, y, "primary"));
}
