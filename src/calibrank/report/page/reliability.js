function drawReliability() {
  const usable = data.methods.filter((method) => !method.error);
  const find = (name) => usable.find((method) => method.name === name) || usable[0];
  const state = { after: data.main, before: data.before, axes: "linear", binning: "mass", zoom: "data" };

  function domain(curves) {
    if (state.axes === "logit" && state.zoom === "all") return [0.0005, 0.9995];
    if (state.axes === "logit") {
      const least = Math.min(...curves.flatMap((curve) => curve.predicted.filter((value) => value > 0)));
      const most = Math.max(...curves.flatMap((curve) => curve.predicted.filter((value) => value < 1)));
      return [Math.max(0.0005, Math.min(least / 2, 0.05)), Math.min(0.9995, Math.max(1 - (1 - most) / 2, 0.5))];
    }
    if (state.zoom === "all") return [0, 1];
    const after = curves[0];
    return [0, Math.min(1, 1.08 * Math.max(...after.predicted, ...after.high.map((value) => Math.min(value, 1))))];
  }

  function draw(width) {
    const [after, before] = [find(state.after), find(state.before)];
    const curves = [after, before].map((method) => method.curves[state.binning]);
    const [from, to] = domain(curves);
    const left = 52;
    const side = Math.min(width - left - 12, 520);
    const [top, histogram] = [20, 90];
    const height = top + side + histogram + 74;
    const scale = state.axes === "logit" ? logitScale : linear;
    const x = scale(from, to, left, left + side);
    const y = scale(from, to, top + side, top);
    const clip = (value) => y(Math.min(Math.max(value, from), to));
    const label = `Reliability diagram of ${after.name}: predicted probability against the share liked, in ${curves[0].predicted.length} bins, with a 95 % band. The numbers follow below.`;
    const chart = canvas(width, height, label);
    chart.append(axisY(y, left, left + side, percent, "share liked"));
    chart.append(line([[x(from), y(from)], [x(to), y(to)]], "guide"));
    const shown = [];
    for (const [curve, kind, method] of [[curves[1], "before", before], [curves[0], "after", after]]) {
      const inside = curve.predicted.map((value, at) => ({ value, at })).filter(({ value }) => value <= to * 1.0001);
      const points = inside.map(({ value, at }) => [x(value), clip(curve.observed[at])]);
      if (kind === "after") {
        chart.append(band(inside.map(({ value, at }) => [x(value), clip(curve.high[at])]), inside.map(({ value, at }) => [x(value), clip(curve.low[at])]), kind));
      }
      chart.append(line(points, kind));
      for (const [order, { at, value }] of inside.entries()) {
        const [px, py] = points[order];
        const within = curve.observed[at] <= to * 1.0001;
        chart.append(svg(kind === "after" ? "circle" : "rect", kind === "after" ? { cx: px, cy: py, r: 4, class: `dot ${kind}` } : { x: px - 3.5, y: py - 3.5, width: 7, height: 7, class: `dot ${kind}`, opacity: within ? 1 : 0.4 }));
        shown.push({
          x: px,
          y: py,
          lines: [
            method.name,
            `predicted ${percent(value)}`,
            `liked ${percent(curve.observed[at])} (${between(curve.low[at], curve.high[at], percent)})`,
            `${count(curve.rows[at])} rows`,
          ],
        });
      }
    }
    drawHistogram(chart, x, [after, before], top + side + 30, histogram, from, to);
    chart.append(axisX(x, top + side + 30 + histogram, percent, "predicted probability"));
    hover(chart, (px, py) => nearest(shown, px, py));
    return chart;
  }

  function drawHistogram(chart, x, methods, top, height, from, to) {
    const { bins, logits } = data.histogram;
    const isLogit = state.axes === "logit";
    const all = Array.from({ length: bins + 1 }, (_, at) => (isLogit ? expit(-logits + (2 * logits * at) / bins) : at / bins));
    const inside = (values) => values.filter((_, at) => all[at + 1] > from && all[at] < to);
    const first = all.findIndex((_, at) => all[at + 1] > from);
    const counted = methods.map((method) => inside(method.histogram[isLogit ? "logit" : "linear"]));
    const edges = all.slice(first, first + counted[0].length + 1).map((edge) => Math.min(Math.max(edge, from), to));
    const y = linear(0, Math.max(...counted[0], 1), top + height, top + 8);
    chart.append(svg("text", { x: 2, y: top + 2, class: "axis title" }, `rows, ${count(Math.max(...counted[0]))} at most`));
    chart.append(...bars(edges, counted[0], x, y, "after"));
    const cut = counted[1].map((value) => Math.min(value, y.domain[1]));
    chart.append(stairs(edges, cut, x, y, "before thin"));
  }

  function rows() {
    const [after, before] = [find(state.after), find(state.before)];
    const list = [];
    for (const method of [after, before]) {
      const curve = method.curves[state.binning];
      curve.predicted.forEach((value, at) =>
        list.push([method.name, percent(value), percent(curve.observed[at]), between(curve.low[at], curve.high[at], percent), count(curve.rows[at])]),
      );
    }
    return table(["method", "predicted", "liked", "95 % interval", "rows"], list, "Reliability, bin by bin", "dense");
  }

  // Small multiples: every method at a glance, on the scale of the predictions; choosing one puts it into the diagram.
  function thumbnail(method) {
    const curve = method.curves.mass;
    const most = Math.min(1, 1.05 * Math.max(...curve.predicted, ...curve.observed));
    const [x, y] = [linear(0, most, 3, 93), linear(0, most, 93, 3)];
    const held = (value) => y(Math.min(value, most));
    const small = svg("svg", { viewBox: "0 0 96 96", "aria-hidden": "true" }, line([[3, 93], [93, 3]], "guide"), line(curve.predicted.map((value, at) => [x(value), held(curve.observed[at])]), "after"));
    const button = el("button", { type: "button", class: "thumb", "aria-pressed": String(method.name === state.after), "data-method": method.name }, small, el("span", null, method.name), el("span", { class: "small" }, `to ${percent(most)}`));
    button.addEventListener("click", () => change("after")(method.name));
    return button;
  }

  const gallery = el("div", { class: "gallery", role: "group", "aria-label": "Every method at a glance" }, usable.map(thumbnail));
  const keys = el("div", null);
  const relabel = () => {
    for (const button of gallery.children) button.setAttribute("aria-pressed", String(button.dataset.method === state.after));
    after.querySelector("select").value = state.after;
    keys.replaceChildren(key([["after", `${state.after}, with 95 % band`], ["before", `compared with ${state.before}`], ["guide", "as promised"]]));
  };
  const drawn = figure(
    "reliability-figure",
    draw,
    "On the dashed line, what was promised is what happened. Points above it were promised too little, points below too much; where the band holds the line, chance explains the gap. Below: how many rows were given each probability.",
    rows,
  );
  const change = (name) => (value) => {
    state[name] = value;
    relabel();
    drawn.refresh();
  };
  const names = usable.map((method) => [method.name, method.name]);
  const after = choose("After", names, state.after, change("after"));
  relabel();
  section(
    "reliability",
    "Reliability",
    el(
      "div",
      { class: "controls" },
      after,
      choose("Before", names, state.before, change("before")),
      switches("Axes", [["linear", "linear"], ["logit", "logit"]], state.axes, change("axes")),
      switches("Range", [["data", "predictions"], ["all", "0 to 100 %"]], state.zoom, change("zoom")),
      switches("Bins", [["mass", "equal mass"], ["width", "equal width"]], state.binning, change("binning")),
    ),
    el("div", { class: "diagram" }, el("div", null, keys, drawn), el("div", null, el("h3", null, "Every method"), gallery)),
  );
}
