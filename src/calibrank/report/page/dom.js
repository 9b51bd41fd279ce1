// Elements, numbers as text, the tooltip, and the controls that sections share.
// All elements are created here: names from a table become text nodes, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (isMissing(value) || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => !isMissing(child)));
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

// A name may be written right to left; isolated, it cannot reorder the words around it.
const nameOf = (text) => el("bdi", { class: "name" }, String(text));

// ----- numbers as text -----
const isMissing = (value) => value === null || value === undefined;
const count = (value) => Math.round(value).toLocaleString("en-GB");
// What rounds to zero has no sign.
const digits = (value, places) =>
  isMissing(value) ? "–" : value.toFixed(places).replace(/^-(0\.?0*)$/, "$1");

// About three significant digits, more where a probability is close to 0 or 1.
function percent(value) {
  if (isMissing(value)) return "–";
  const hundred = value * 100;
  const size = Math.abs(hundred);
  let places = 1;
  if (size === 0 || size >= 99.95) places = 0;
  else if (size < 0.1) places = 3;
  else if (size < 1 || size > 99) places = 2;
  return `${Number(hundred.toFixed(places))}%`;
}

function interval(low, high, format) {
  return isMissing(low) ? "" : `${format(low)} to ${format(high)}`;
}

// ----- the one tooltip, shown by mouse and touch -----
const tooltip = document.getElementById("tooltip");

function showTooltip(x, y, ...lines) {
  tooltip.replaceChildren(...lines.map((line) => el("div", null, line)));
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  const left = Math.min(x + 14, clientWidth - box.width - 8);
  const fitsBelow = y + 18 + box.height < clientHeight;
  const top = fitsBelow ? y + 18 : y - box.height - 10;
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
addEventListener("scroll", hideTooltip, { passive: true });

// ----- parts of sections -----
const sections = [];

function section(id, title, ...children) {
  sections.push({ id, title });
  const heading = el("h2", { id: `${id}-title` }, title);
  const attributes = { id, "aria-labelledby": `${id}-title` };
  const node = el("section", attributes, heading, ...children);
  document.getElementById("main").append(node);
  return node;
}

// A region that scrolls sideways on narrow screens, and that the keyboard can reach.
function scrollable(label, content) {
  const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  return el("div", attributes, content);
}

const columnHead = (text) => el("th", { scope: "col" }, text);
const rowHead = (text) => el("th", { scope: "row" }, text);

function table(headings, rows, caption, classes) {
  const head = el("thead", null, el("tr", null, headings.map(columnHead)));
  const body = rows.map(([first, ...rest]) => {
    const cells = rest.map((cell) => el("td", null, cell));
    return el("tr", null, rowHead(first), cells);
  });
  const title = el("caption", null, caption);
  return scrollable(caption, el("table", { class: classes }, title, head, el("tbody", null, body)));
}

// A chart's numbers as a table that is built only when it is opened.
function numbers(makeTable) {
  const summary = el("summary", null, "Show the numbers");
  const details = el("details", { class: "numbers" }, summary);
  details.fillIn = () => {
    if (details.children.length === 1) details.append(makeTable());
  };
  details.addEventListener("toggle", details.fillIn);
  return details;
}

function definitions(entries) {
  const items = entries.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]);
  return el("dl", { class: "definitions" }, items);
}

function switches(label, options, chosen, change) {
  const buttons = options.map(([value, text]) => {
    const pressed = String(value === chosen);
    const attributes = { type: "button", "aria-pressed": pressed, "data-value": value };
    return el("button", attributes, text);
  });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      change(button.dataset.value);
    });
  }
  const attributes = { class: "control switches", role: "group", "aria-label": label };
  return el("div", attributes, el("span", null, label), buttons);
}
