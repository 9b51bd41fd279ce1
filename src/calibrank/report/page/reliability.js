const LOGIT_LIMITS = [0.0005, 0.9995];

function drawReliability() {
  const usable = data.methods.filter((method) => !method.error);
  const find = (name) => usable.find((method) => method.name === name) || usable[0];
  const state = {
    method: data.main_method,
    compared: data.baseline_method,
    axes: "linear",
    binning: "mass",
    range: "data",
  };

  const legendHolder = el("div", null);
  const caption =
    "On the dashed line the observed rate equals the prediction. Points above it were " +
    "predicted too low, points below it too high; where the band contains the line, chance " +
    "explains the gap. Below: the number of rows by predicted probability.";
  const chart = figure("reliability-figure", draw, caption, makeTable);
  const change = (name) => (value) => {
    state[name] = value;
    showChoice();
    chart.refresh();
  };
  const names = usable.map((method) => [method.name, method.name]);
  const methodControl = choose("Method", names, state.method, change("method"));
  const gallery = drawGallery(usable, change("method"));

  function showChoice() {
    for (const button of gallery.children) {
      button.setAttribute("aria-pressed", String(button.dataset.method === state.method));
    }
    methodControl.querySelector("select").value = state.method;
    const entries = [
      ["primary", `${state.method}, with 95% interval`],
      ["secondary", state.compared],
      ["guide", "perfect calibration"],
    ];
    legendHolder.replaceChildren(legend(entries));
  }

  function draw(width) {
    const methods = [find(state.method), find(state.compared)];
    return reliabilityChart(width, methods, state);
  }

  function makeTable() {
    const rows = [];
    for (const method of [find(state.method), find(state.compared)]) {
      for (const point of curvePoints(method.curves[state.binning])) {
        const range = interval(point.low, point.high, percent);
        const { predicted, observed } = point;
        rows.push([method.name, percent(predicted), percent(observed), range, count(point.rows)]);
      }
    }
    const headings = ["method", "predicted", "observed", "95% interval", "rows"];
    return table(headings, rows, "Reliability by bin", "dense");
  }

  showChoice();
  const axesOptions = [["linear", "linear"], ["logit", "logit"]];
  const rangeOptions = [["data", "predictions"], ["all", "0 to 100%"]];
  const binOptions = [["mass", "equal mass"], ["width", "equal width"]];
  const controls = el(
    "div",
    { class: "controls" },
    methodControl,
    choose("Compare with", names, state.compared, change("compared")),
    switches("Axes", axesOptions, state.axes, change("axes")),
    switches("Range", rangeOptions, state.range, change("range")),
    switches("Bins", binOptions, state.binning, change("binning")),
  );
  const diagram = el(
    "div",
    { class: "diagram" },
    el("div", null, legendHolder, chart),
    el("div", null, el("h3", null, "All methods"), gallery),
  );
  section("reliability", "Reliability", controls, diagram);
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

function reliabilityDomain(curves, state) {
  if (state.axes === "logit") {
    if (state.range === "all") return LOGIT_LIMITS;
    const predicted = curves.flatMap((curve) => curve.predicted);
    const least = Math.min(...predicted.filter((value) => value > 0));
    const most = Math.max(...predicted.filter((value) => value < 1));
    const low = Math.min(least / 2, 0.05);
    const high = Math.max(1 - (1 - most) / 2, 0.5);
    return [Math.max(LOGIT_LIMITS[0], low), Math.min(LOGIT_LIMITS[1], high)];
  }
  if (state.range === "all") return [0, 1];
  const ends = curves[0].high.map((value) => Math.min(value, 1));
  return [0, Math.min(1, 1.08 * Math.max(...curves[0].predicted, ...ends))];
}

function reliabilityChart(width, methods, state) {
  const curves = methods.map((method) => method.curves[state.binning]);
  const [from, to] = reliabilityDomain(curves, state);
  const left = 52;
  const top = 20;
  const side = Math.min(width - left - 12, 520);
  const histogramTop = top + side + 30;
  const histogramHeight = 90;
  const makeScale = state.axes === "logit" ? logitScale : linearScale;
  const x = makeScale(from, to, left, left + side);
  const y = makeScale(from, to, top + side, top);
  const label =
    `Reliability diagram of ${methods[0].name}: predicted probability against observed rate ` +
    `in ${curves[0].predicted.length} bins, with a 95% interval. The numbers follow below.`;
  const chart = canvas(width, histogramTop + histogramHeight + 44, label);
  chart.append(axisY(y, left, left + side, percent, "observed rate"));
  chart.append(line([[x(from), y(from)], [x(to), y(to)]], "guide"));
  const points = [
    ...drawCurve(chart, methods[1], curves[1], "secondary", x, y),
    ...drawCurve(chart, methods[0], curves[0], "primary", x, y),
  ];
  drawPredictionHistogram(chart, x, methods, state.axes, histogramTop, histogramHeight);
  chart.append(axisX(x, histogramTop + histogramHeight, percent, "predicted probability"));
  hover(chart, (px, py) => nearest(points, px, py));
  return chart;
}

// Draw one curve and return its points for the tooltip.
function drawCurve(chart, method, curve, kind, x, y) {
  const [from, to] = y.domain;
  const limit = to * 1.0001; // rounding must not drop the last bin
  const place = (value) => y(clamp(value, from, to));
  const shown = curvePoints(curve).filter(({ predicted }) => predicted <= limit);
  if (kind === "primary") {
    const upper = shown.map(({ predicted, high }) => [x(predicted), place(high)]);
    const lower = shown.map(({ predicted, low }) => [x(predicted), place(low)]);
    chart.append(band(upper, lower, kind));
  }
  const places = shown.map(({ predicted, observed }) => [x(predicted), place(observed)]);
  chart.append(line(places, kind));
  return shown.map((point, at) => {
    const [px, py] = places[at];
    chart.append(curveDot(kind, px, py, point.observed <= limit));
    const range = interval(point.low, point.high, percent);
    const lines = [
      method.name,
      `predicted ${percent(point.predicted)}`,
      `observed ${percent(point.observed)} (${range})`,
      `${count(point.rows)} rows`,
    ];
    return { x: px, y: py, lines };
  });
}

// Circles and squares, so that the curves differ without colour; faint where cut off by the axis.
function curveDot(kind, x, y, isInside) {
  if (kind === "primary") return svg("circle", { cx: x, cy: y, r: 4, class: `dot ${kind}` });
  const opacity = isInside ? 1 : 0.4;
  const square = { x: x - 3.5, y: y - 3.5, width: 7, height: 7, opacity };
  return svg("rect", { ...square, class: `dot ${kind}` });
}

function drawPredictionHistogram(chart, x, methods, axes, top, height) {
  const [from, to] = x.domain;
  const { bins, log_odds_limit: limit } = data.histogram;
  const edgeAt = (at) =>
    axes === "logit" ? expit(-limit + (2 * limit * at) / bins) : at / bins;
  const all = Array.from({ length: bins + 1 }, (_, at) => edgeAt(at));
  const inside = (_, at) => all[at + 1] > from && all[at] < to;
  const [main, compared] = methods.map((method) => method.histogram[axes].filter(inside));
  const first = all.findIndex((_, at) => all[at + 1] > from);
  const edges = all.slice(first, first + main.length + 1).map((edge) => clamp(edge, from, to));
  const most = Math.max(...main);
  const y = linearScale(0, Math.max(most, 1), top + height, top + 8);
  const title = `rows, at most ${count(most)} per bin`;
  chart.append(svg("text", { x: 2, y: top + 2, class: "axis title" }, title));
  chart.append(...bars(edges, main, x, y, "primary"));
  const cut = compared.map((value) => Math.min(value, y.domain[1]));
  chart.append(steps(edges, cut, x, y, "secondary thin"));
}

// Small charts of all methods, each on the scale of its predictions; a click selects one.
function drawGallery(methods, select) {
  const buttons = methods.map((method) => {
    const button = thumbnail(method);
    button.addEventListener("click", () => select(method.name));
    return button;
  });
  const attributes = { class: "gallery", role: "group", "aria-label": "Select a method" };
  return el("div", attributes, buttons);
}

function thumbnail(method) {
  const curve = method.curves.mass;
  const most = Math.min(1, 1.05 * Math.max(...curve.predicted, ...curve.observed));
  const x = linearScale(0, most, 3, 93);
  const y = linearScale(0, most, 93, 3);
  const points = curvePoints(curve).map(({ predicted, observed }) => [
    x(predicted),
    y(Math.min(observed, most)),
  ]);
  const chart = svg(
    "svg",
    { viewBox: "0 0 96 96", "aria-hidden": "true" },
    line([[3, 93], [93, 3]], "guide"),
    line(points, "primary"),
  );
  const range = el("span", { class: "small" }, `0 to ${percent(most)}`);
  const attributes = { type: "button", class: "thumbnail", "data-method": method.name };
  return el("button", attributes, chart, el("span", null, method.name), range);
}
