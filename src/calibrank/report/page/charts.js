// Scales, axes and marks. A chart is drawn at the width it is shown at, so that its text keeps
// its size on a phone.
const logit = (p) => Math.log(p) - Math.log1p(-p);
const expit = (z) => 1 / (1 + Math.exp(-z));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function linearScale(from, to, start, end) {
  const scale = (value) => start + ((value - from) / (to - from || 1)) * (end - start);
  scale.ticks = (most) => niceTicks(from, to, most || 6);
  scale.domain = [from, to];
  return scale;
}

const LOGIT_TICKS = [
  0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999, 0.9999,
];

function logitScale(from, to, start, end) {
  const inner = linearScale(logit(from), logit(to), start, end);
  const scale = (value) => inner(logit(clamp(value, from, to)));
  scale.ticks = () => LOGIT_TICKS.filter((tick) => tick >= from && tick <= to);
  scale.domain = [from, to];
  return scale;
}

// Steps of 1, 2 or 5 times a power of ten, at most `most` of them.
function niceTicks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  const step = steps.find((value) => value >= rough) || power;
  const ticks = [];
  const first = Math.ceil(from / step - 1e-9) * step;
  for (let tick = first; tick <= to + step * 1e-6; tick += step) {
    ticks.push(Number(tick.toPrecision(12)));
  }
  return ticks;
}

function canvas(width, height, label) {
  const viewBox = `0 0 ${width} ${height}`;
  return svg("svg", { viewBox, role: "img", "aria-label": label, class: "chart" });
}

const PIXELS_PER_TICK = 70;

function axisX(x, y, format, title, ticks) {
  const group = svg("g", { class: "axis" });
  const left = x(x.domain[0]);
  const right = x(x.domain[1]);
  group.append(svg("line", { x1: left, x2: right, y1: y, y2: y }));
  const most = Math.max(3, Math.floor((right - left) / PIXELS_PER_TICK));
  for (const tick of ticks || x.ticks(most)) {
    const at = x(tick);
    group.append(svg("line", { x1: at, x2: at, y1: y, y2: y + 4 }));
    group.append(svg("text", { x: at, y: y + 17, "text-anchor": "middle" }, format(tick)));
  }
  if (title) {
    const middle = (left + right) / 2;
    const attributes = { x: middle, y: y + 36, "text-anchor": "middle", class: "title" };
    group.append(svg("text", attributes, title));
  }
  return group;
}

function axisY(y, x, right, format, title, most) {
  const group = svg("g", { class: "axis" });
  for (const tick of y.ticks(most || 5)) {
    const at = y(tick);
    group.append(svg("line", { x1: x, x2: right, y1: at, y2: at, class: "grid" }));
    group.append(svg("text", { x: x - 7, y: at + 4, "text-anchor": "end" }, format(tick)));
  }
  if (title) group.append(svg("text", { x: 2, y: 11, class: "title" }, title));
  return group;
}

function pathOf(points) {
  const steps = points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
  return steps.join("");
}

function line(points, kind) {
  return svg("path", { d: pathOf(points), class: `line ${kind}` });
}

function band(upper, lower, kind) {
  const outline = [...upper, ...lower.slice().reverse()];
  return svg("path", { d: `${pathOf(outline)}Z`, class: `band ${kind}` });
}

function bars(edges, values, x, y, kind) {
  const base = y(y.domain[0]);
  return values.map((value, at) => {
    const left = x(edges[at]);
    const width = Math.max(0.5, x(edges[at + 1]) - left - 0.7);
    const top = y(value);
    const height = Math.max(0, base - top);
    return svg("rect", { x: left, width, y: top, height, class: `bar ${kind}` });
  });
}

// Mark the point that `find` returns for the pointer's position, and show its lines of text.
function hover(chart, find) {
  const mark = svg("circle", { r: 7, class: "mark", visibility: "hidden" });
  chart.append(mark);
  const move = (event) => {
    const box = chart.getBoundingClientRect();
    const scale = chart.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const y = (event.clientY - box.top) * scale;
    const found = find(x, y);
    if (!found) return;
    mark.setAttribute("cx", found.x);
    mark.setAttribute("cy", found.y);
    mark.setAttribute("visibility", "visible");
    showTooltip(event.clientX, event.clientY, ...found.lines);
  };
  chart.addEventListener("pointermove", move);
  chart.addEventListener("pointerdown", move);
  chart.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    hideTooltip();
  });
}

// The nearest point in the plane, or along the x axis where no `y` is given.
function nearest(points, x, y) {
  let best = null;
  for (const point of points) {
    const vertical = y === undefined ? 0 : (point.y - y) ** 2;
    const distance = (point.x - x) ** 2 + vertical;
    if (best === null || distance < best.distance) best = { ...point, distance };
  }
  return best;
}

const drawings = [];

// A chart with a caption and, where `makeTable` is given, its numbers as a table.
function figure(id, draw, caption, makeTable) {
  const holder = el("div", { class: "holder" });
  const details = makeTable ? numbers(makeTable) : null;
  const node = el("figure", { id }, holder, el("figcaption", null, caption), details);
  let width = 0;
  node.redraw = () => {
    width = Math.max(280, Math.round(holder.clientWidth || 640));
    holder.replaceChildren(draw(width));
  };
  node.resize = () => {
    if (Math.abs((holder.clientWidth || width) - width) > 4) node.redraw();
  };
  node.refresh = () => {
    node.redraw();
    if (!details) return;
    while (details.children.length > 1) details.lastChild.remove();
    if (details.open) details.fillIn();
  };
  drawings.push(node);
  return node;
}

function legend(entries) {
  const items = entries.map(([kind, text]) => {
    const swatch = el("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
    return el("li", null, swatch, text);
  });
  return el("ul", { class: "legend" }, items);
}
