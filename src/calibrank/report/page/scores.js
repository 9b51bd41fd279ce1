function drawScores() {
  const shape = data.scores;
  const middles = shape.edges.slice(1).map((edge, at) => (edge + shape.edges[at]) / 2);
  const state = { method: data.main, axes: "linear", density: "map" };
  const raw = (value) => Number(value.toPrecision(3)).toString();
  const [low, high] = [shape.edges[0], shape.edges[shape.edges.length - 1]];

  function drawDensities(width) {
    const [left, top, height] = [44, 20, 230];
    const chart = canvas(width, top + height + 46, "Histograms of the score for liked and for other pairs, with fitted densities as lines. The numbers follow below.");
    const lines = [shape[`${state.density}_rest`], shape[`${state.density}_liked`]];
    const most = Math.max(...shape.liked, ...shape.rest, ...lines[0], ...lines[1]);
    const x = linear(low, high, left, width - 10);
    const y = linear(0, most * 1.05, top + height, top);
    chart.append(axisY(y, left, width - 10, raw, "density", 4));
    chart.append(...bars(shape.edges, shape.rest, x, y, "rest"), ...bars(shape.edges, shape.liked, x, y, "liked"));
    chart.append(line(middles.map((middle, at) => [x(middle), y(lines[0][at])]), "rest"), line(middles.map((middle, at) => [x(middle), y(lines[1][at])]), "liked"));
    chart.append(axisX(x, top + height, raw, "score"));
    const points = middles.map((middle, at) => ({
      x: x(middle),
      y: y(Math.max(shape.liked[at], shape.rest[at])),
      lines: [`score ${raw(shape.edges[at])} to ${raw(shape.edges[at + 1])}`, `${count(shape.rows[at])} rows`, `density: liked ${raw(shape.liked[at])}, others ${raw(shape.rest[at])}`],
    }));
    hover(chart, (px) => nearest(points, px));
    return chart;
  }

  function drawMap(width) {
    const { scores, curves } = data.maps;
    const curve = curves[state.method];
    const [left, top, height] = [52, 20, 300];
    const chart = canvas(width, top + height + 46, `The map of ${state.method}: probability over the raw score, rising from ${percent(curve.value[0])} to ${percent(curve.value[curve.value.length - 1])}, with its 95 % interval. The numbers follow below.`);
    const x = linear(low, high, left, width - 10);
    const seen = shape.observed.value.map((value, at) => ({ value, at })).filter(({ value, at }) => !missing(value) && shape.rows[at] >= 20);
    const isLogit = state.axes === "logit";
    const open = data.doubt && state.method === data.main ? data.doubt.high : [];
    const top1 = Math.min(1, 1.05 * Math.max(...curve.high, ...open, ...seen.map(({ value }) => value)));
    const y = isLogit ? logitScale(0.001, 0.999, top + height, top) : linear(0, Math.max(top1, 0.01), top + height, top);
    const held = (value) => y(Math.min(Math.max(value, y.domain[0]), y.domain[1]));
    chart.append(axisY(y, left, width - 10, percent, "probability"));
    chart.append(band(scores.map((score, at) => [x(score), held(curve.high[at])]), scores.map((score, at) => [x(score), held(curve.low[at])]), "after"));
    if (data.doubt && state.method === data.main) {
      chart.append(band(scores.map((score, at) => [x(score), held(data.doubt.high[at])]), scores.map((score, at) => [x(score), held(data.doubt.low[at])]), "doubt"));
    }
    for (const { value, at } of seen) {
      const px = x(middles[at]);
      chart.append(svg("line", { x1: px, x2: px, y1: held(shape.observed.low[at]), y2: held(shape.observed.high[at]), class: "whisker" }));
      chart.append(svg("circle", { cx: px, cy: held(value), r: 2.6, class: "dot seen" }));
    }
    if (state.method !== data.main) chart.append(line(scores.map((score, at) => [x(score), held(curves[data.main].value[at])]), "guide"));
    chart.append(line(scores.map((score, at) => [x(score), held(curve.value[at])]), "after"));
    chart.append(axisX(x, top + height, raw, "score"));
    const points = scores.map((score, at) => ({
      x: x(score),
      y: held(curve.value[at]),
      lines: [`score ${raw(score)}`, `probability ${percent(curve.value[at])}`, `95 % interval ${between(curve.low[at], curve.high[at], percent)}`],
    }));
    hover(chart, (px) => nearest(points, px));
    return chart;
  }

  const densityTable = () =>
    table(
      ["score", "rows", "liked", "others", "liked, by the map", "others, by the map", "share liked"],
      middles.map((_, at) => [
        `${raw(shape.edges[at])} to ${raw(shape.edges[at + 1])}`, count(shape.rows[at]), raw(shape.liked[at]), raw(shape.rest[at]),
        raw(shape.map_liked[at]), raw(shape.map_rest[at]), percent(shape.observed.value[at]),
      ]),
      "Densities by score", "dense",
    );
  const mapTable = () => {
    const { scores, curves } = data.maps;
    const curve = curves[state.method];
    const rows = scores.map((score, at) => [raw(score), percent(curve.value[at]), between(curve.low[at], curve.high[at], percent)]);
    return table(["score", "probability", "95 % interval"], rows.filter((_, at) => at % 6 === 0), `The map of ${state.method}`, "dense");
  };

  const densities = figure("density-figure", drawDensities, "Bars: scores of liked pairs and of the others, each summing to one; lines: the densities that were fitted. The further apart the two, the more the scores tell; where lines leave bars, the family does not fit.", densityTable);
  const maps = figure("map-figure", drawMap, "The line turns a score into a probability; its band is the sampling error of the fit alone. Points: the share liked among pairs of about that score, with 95 % whiskers (bins of 20 rows or more). Dashed, when another method is chosen: the map of this report." + (data.doubt ? " Amber: where the probability may lie for all that this biased log can tell; more of the same log would not narrow it." : ""), mapTable);
  const change = (name, drawn) => (value) => {
    state[name] = value;
    drawn.refresh();
  };
  const about = data.parameters;
  const facts = [
    el("p", null, el("b", null, about.method), `, fitted on ${count(about.rows)} rows by ${about.evidence} evidence with a mean preference of ${percent(about.rate)}. `, about.description),
    about.parameters.length
      ? table(["parameter", "value", "standard error"], about.parameters.map(([name, value, error]) => [name, Number(value.toPrecision(6)).toString(), Number(error.toPrecision(2)).toString()]), "Parameters in score units", "short")
      : null,
  ];
  if (data.doubt) {
    const rows = data.doubt.choices.map(([name, rate, top]) => [name, percent(rate), missing(top) ? "no finite fit" : percent(top)]);
    facts.push(
      el("p", { id: "doubt" }, `Base rates this log is compatible with: ${percent(data.doubt.low_rate)} to ${percent(data.doubt.high_rate)}. How the answer moves with what was chosen:`),
      table(["choice", "mean preference", "of the top tenth"], rows, "Choices that the log cannot settle", "short"),
    );
  }
  section(
    "scores",
    "Scores and the map",
    el("div", { class: "columns" },
      el("div", null,
        el("div", { class: "controls" }, switches("Densities", [["map", "by the map"], ["normal", "two normals"]], state.density, change("density", densities))),
        key([["liked", "liked"], ["rest", "others"]]),
        densities),
      el("div", null,
        el("div", { class: "controls" },
          choose("Map", Object.keys(data.maps.curves).map((name) => [name, name]), state.method, change("method", maps)),
          switches("Axis", [["linear", "linear"], ["logit", "logit"]], state.axes, change("axes", maps))),
        key([["after", "map, with 95 % interval"], ["seen", "share liked"]].concat(data.doubt ? [["doubt", "what the log leaves open"]] : [])),
        maps)),
    el("div", { class: "facts", id: "parameters" }, facts),
  );
}
