// Scales, axes and marks. Charts are drawn at the width they are shown at, so that letters keep their size on a phone.
const logit = (p) => Math.log(p) - Math.log1p(-p);
const expit = (z) => 1 / (1 + Math.exp(-z));

function linear(from, to, start, end) {
  const scale = (value) => start + ((value - from) / (to - from || 1)) * (end - start);
  scale.ticks = (most) => niceTicks(from, to, most || 6);
  scale.domain = [from, to];
  return scale;
}

function logitScale(from, to, start, end) {
  const inner = linear(logit(from), logit(to), start, end);
  const scale = (value) => inner(logit(Math.min(Math.max(value, from), to)));
  const marks = [0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999, 0.9999];
  scale.ticks = () => marks.filter((mark) => mark >= from && mark <= to);
  scale.domain = [from, to];
  return scale;
}

function niceTicks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough) || power;
  const ticks = [];
  for (let tick = Math.ceil(from / step - 1e-9) * step; tick <= to + step * 1e-6; tick += step) {
    ticks.push(Number(tick.toPrecision(12)));
  }
  return ticks;
}

function canvas(width, height, label) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" });
}

function axisX(x, y, show, title, ticks) {
  const group = svg("g", { class: "axis" });
  const [left, right] = [x(x.domain[0]), x(x.domain[1])];
  group.append(svg("line", { x1: left, x2: right, y1: y, y2: y }));
  for (const tick of ticks || x.ticks(Math.max(3, Math.floor((right - left) / 70)))) {
    const at = x(tick);
    group.append(svg("line", { x1: at, x2: at, y1: y, y2: y + 4 }));
    group.append(svg("text", { x: at, y: y + 17, "text-anchor": "middle" }, show(tick)));
  }
  if (title) group.append(svg("text", { x: (left + right) / 2, y: y + 36, "text-anchor": "middle", class: "title" }, title));
  return group;
}

function axisY(y, x, right, show, title, most) {
  const group = svg("g", { class: "axis" });
  for (const tick of y.ticks(most || 5)) {
    const at = y(tick);
    group.append(svg("line", { x1: x, x2: right, y1: at, y2: at, class: "grid" }));
    group.append(svg("text", { x: x - 7, y: at + 4, "text-anchor": "end" }, show(tick)));
  }
  if (title) group.append(svg("text", { x: 2, y: 11, class: "title" }, title));
  return group;
}

const pathOf = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function line(points, kind) {
  return svg("path", { d: pathOf(points), class: `line ${kind}` });
}

function band(upper, lower, kind) {
  return svg("path", { d: `${pathOf([...upper, ...lower.slice().reverse()])}Z`, class: `band ${kind}` });
}

function bars(edges, values, x, y, kind) {
  const floor = y(y.domain[0]);
  return values.map((value, at) => {
    const [left, right, top] = [x(edges[at]), x(edges[at + 1]), y(value)];
    return svg("rect", { x: left, width: Math.max(0.5, right - left - 0.7), y: top, height: Math.max(0, floor - top), class: `bar ${kind}` });
  });
}

function stairs(edges, values, x, y, kind) {
  const points = values.flatMap((value, at) => [
    [x(edges[at]), y(value)],
    [x(edges[at + 1]), y(value)],
  ]);
  return line(points, kind);
}

// Wherever the pointer is within the chart, `find` says which point is meant and what to tell of it.
function hover(chart, find) {
  const mark = svg("circle", { r: 7, class: "mark", visibility: "hidden" });
  chart.append(mark);
  const move = (event) => {
    const box = chart.getBoundingClientRect();
    const scale = chart.viewBox.baseVal.width / box.width;
    const found = find((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (!found) return;
    mark.setAttribute("cx", found.x);
    mark.setAttribute("cy", found.y);
    mark.setAttribute("visibility", "visible");
    showTip(event.clientX, event.clientY, ...found.lines);
  };
  chart.addEventListener("pointermove", move);
  chart.addEventListener("pointerdown", move);
  chart.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    leaveTip();
  });
}

function nearest(points, x, y) {
  let best = null;
  for (const point of points) {
    const distance = (point.x - x) ** 2 + (y === undefined ? 0 : (point.y - y) ** 2);
    if (best === null || distance < best.distance) best = { ...point, distance };
  }
  return best;
}

const drawings = [];

function figure(id, draw, caption, make) {
  const holder = el("div", { class: "holder" });
  const node = el("figure", { id }, holder, el("figcaption", null, caption), make ? numbers(make) : null);
  let width = 0;
  node.redraw = () => {
    width = Math.max(280, Math.round(holder.clientWidth || 640));
    holder.replaceChildren(draw(width));
  };
  node.refresh = () => {
    node.redraw();
    const details = node.querySelector("details.numbers");
    if (details) {
      while (details.children.length > 1) details.lastChild.remove();
      if (details.open) details.fillIn();
    }
  };
  drawings.push([holder, () => Math.abs((holder.clientWidth || width) - width) > 4 && node.redraw(), node]);
  return node;
}

function key(entries) {
  return el("ul", { class: "key" }, entries.map(([kind, text]) => el("li", null, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));
}
