// The page of a reproduction: the same look, other numbers.
function drawResults() {
  const titles = { ReleasedMCE: "MCE (as released)", LogLoss: "log loss", CalibrationInTheLarge: "predicted / observed" };
  const losses = { ips: "UERM", naive: "naive", positive_ips: "positives", none: "" };
  const state = { protocol: Object.keys(data.protocols)[0], metric: null, model: null };
  const holder = el("div", { id: "results-table" });
  const unique = (values) => [...new Set(values)];
  const order = Object.keys(data.explanations);
  const cellsNow = () => data.protocols[state.protocol].cells.filter((cell) => cell[0] === state.metric);
  const nameRow = (method, loss) => (method === "" ? "the ranking" : losses[loss] === "" ? method : `${method}, ${losses[loss] || loss}`);
  const worth = (value) => {
    const better = data.better[state.metric];
    return better === "one" ? Math.abs(Math.log(Math.max(value, 1e-300))) : better === "higher" ? -value : value;
  };

  function rowsNow() {
    const cells = cellsNow();
    const models = unique(cells.map((cell) => cell[3])).sort();
    const rows = unique(cells.map((cell) => `${cell[1]}|${cell[2]}`)).map((name) => {
      const [method, loss] = name.split("|");
      return { title: nameRow(method, loss), cells: models.map((model) => cells.find((cell) => cell[1] === method && cell[2] === loss && cell[3] === model)) };
    });
    const mean = (row) => row.cells.filter(Boolean).reduce((sum, cell) => sum + worth(cell[4]), 0) / row.cells.filter(Boolean).length;
    return { models, rows: rows.sort((one, two) => mean(one) - mean(two)) };
  }

  const plusMinus = (half) => (missing(half) ? "" : `± ${digits(half, 4)}`);

  function drawTable() {
    const { models, rows } = rowsNow();
    const best = models.map((_, at) => Math.min(...rows.map((row) => (row.cells[at] ? worth(row.cells[at][4]) : Infinity))));
    const body = rows.map((row) =>
      el("tr", null, el("th", { scope: "row" }, row.title), row.cells.map((cell, at) => {
        if (!cell) return el("td", null, "–");
        const [, , , , mean, half, seeds, published] = cell;
        return el("td", { class: worth(mean) === best[at] ? "best" : null, title: `${seeds} seeds` },
          el("span", { class: "value" }, digits(mean, 4)), el("span", { class: "interval" }, plusMinus(half)),
          missing(published) ? null : el("span", { class: "interval published" }, `paper ${digits(published, 4)}`));
      })));
    holder.replaceChildren(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Means over seeds" },
      el("table", { class: "metrics" },
        el("caption", null, "Mean over seeds ± half its 95 % interval, the published number below where there is one; best of a column in bold, rows by their mean."),
        el("thead", null, el("tr", null, el("th", { scope: "col" }, "method"), models.map((model) => el("th", { scope: "col" }, model)))), el("tbody", null, body))));
  }

  function drawBars(width) {
    const { models, rows } = rowsNow();
    const at = Math.max(0, models.indexOf(state.model));
    const shown = rows.filter((row) => row.cells[at]);
    const [left, top, step] = [Math.min(165, width * 0.48), 8, 24];
    const most = 1.05 * Math.max(...shown.flatMap((row) => [row.cells[at][4] + (row.cells[at][5] || 0), row.cells[at][7] || 0]));
    const height = top + shown.length * step;
    const x = linear(0, most, left, width - 14);
    const chart = canvas(width, height + 42, `${titles[state.metric] || state.metric} of ${models[at]} by method, with 95 % intervals and published numbers. The table above holds the numbers.`);
    const points = [];
    shown.forEach((row, place) => {
      const [, , , , mean, half, seeds, published] = row.cells[at];
      const y = top + place * step;
      chart.append(svg("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, row.title));
      chart.append(svg("rect", { x: left, y: y + 4, width: Math.max(0, x(mean) - left), height: step - 9, class: "bar after" }));
      if (!missing(half)) chart.append(svg("line", { x1: x(Math.max(0, mean - half)), x2: x(mean + half), y1: y + 11, y2: y + 11, class: "cursor" }));
      if (!missing(published)) chart.append(svg("line", { x1: x(published), x2: x(published), y1: y + 1, y2: y + step - 2, class: "paper" }));
      points.push({ x: x(mean), y: y + 11, lines: [row.title, `${digits(mean, 4)} ${plusMinus(half)}, ${seeds} seeds`, missing(published) ? "not in the paper" : `paper ${digits(published, 4)}`] });
    });
    chart.append(axisX(x, height, (tick) => String(tick), titles[state.metric] || state.metric));
    hover(chart, (px, py) => nearest(points.map((point) => ({ ...point, x: px })), px, py));
    return chart;
  }

  const bars = figure("results-figure", drawBars, "Bars: means over seeds; thin lines: 95 % intervals; upright marks: the published number.");
  const controls = el("div", { class: "controls" });

  function rebuild() {
    const cells = data.protocols[state.protocol].cells;
    const metrics = unique(cells.map((cell) => cell[0])).sort((one, two) => order.indexOf(one) - order.indexOf(two));
    if (!metrics.includes(state.metric)) state.metric = metrics.includes("ECE") ? "ECE" : metrics[0];
    const models = unique(cells.map((cell) => cell[3])).sort();
    if (!models.includes(state.model)) [state.model] = models;
    const change = (name) => (value) => { state[name] = value; update(); };
    controls.replaceChildren(
      choose("Protocol", Object.keys(data.protocols).map((name) => [name, name]), state.protocol, (value) => { state.protocol = value; rebuild(); update(); }),
      choose("Metric", metrics.map((name) => [name, titles[name] || name]), state.metric, change("metric")),
      choose("Bars of", models.map((name) => [name, name]), state.model, change("model")),
    );
  }

  const meaning = el("p", { class: "small", id: "meaning" });
  function update() {
    meaning.textContent = data.explanations[state.metric] || "";
    drawTable();
    bars.redraw();
  }

  rebuild();
  section("results", "Results", controls, meaning, el("div", { class: "diagram" }, holder, el("div", null, key([["after", "mean over seeds"], ["paper", "published"]]), bars)));
  const failed = data.failed ? ` ${count(data.failed)} fits have no finite optimum; their rows say why.` : "";
  section("provenance", "Provenance", el("dl", { class: "pairs" },
    [["Rows", `${count(data.rows)} in ${data.source}.${failed}`], ["Rows made by", data.made_by.join("; ")], ["Published numbers", data.published || "none given"], ["Versions", Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join(", ")], ["Make it again", el("code", null, data.command)]]
      .flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
  return update;
}
