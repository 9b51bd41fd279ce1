// Elements are made here and nowhere else: names from a table only ever become text, never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const SPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SPACE, tag), attributes, children);

// A name may run from right to left; isolated, it cannot reorder the words around it.
const nameOf = (text) => el("bdi", { class: "name" }, String(text));

const missing = (value) => value === null || value === undefined;
const count = (value) => Math.round(value).toLocaleString("en-GB");

function digits(value, places) {
  return missing(value) ? "–" : value.toFixed(places);
}

function percent(value) {
  if (missing(value)) return "–";
  const hundred = value * 100;
  const size = Math.abs(hundred);
  const places = size === 0 || size >= 99.95 ? 0 : size < 0.1 ? 3 : size < 1 || (size > 99 && size < 100) ? 2 : 1;
  return `${Number(hundred.toFixed(places))} %`;
}

const between = (low, high, show) => (missing(low) ? "" : `${show(low)} to ${show(high)}`);

// ----- the one tooltip: by mouse, by touch, and by keyboard focus -----
const tip = document.getElementById("tip");

function showTip(x, y, ...lines) {
  tip.replaceChildren(...lines.map((line) => el("div", null, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), document.documentElement.clientWidth - box.width - 8);
  const below = y + 18 + box.height < document.documentElement.clientHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, below ? y + 18 : y - box.height - 10)}px`;
}

let follow = null; // a focused element whose explanation is shown: it stays shown while the page scrolls to it

function hideTip() {
  tip.hidden = true;
  follow = null;
}

// What the pointer showed goes; what the keyboard asked for comes back.
const leaveTip = () => (follow ? follow() : hideTip());

function explain(node, text) {
  const show = () => {
    const box = node.getBoundingClientRect();
    const seen = box.bottom > 0 && box.top < document.documentElement.clientHeight;
    if (seen) showTip(box.left, box.bottom - 8, text);
    else tip.hidden = true;
  };
  node.addEventListener("pointerenter", show);
  node.addEventListener("focus", () => {
    show();
    follow = show;
  });
  node.addEventListener("pointerleave", leaveTip);
  node.addEventListener("blur", hideTip);
  return node;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
addEventListener("scroll", leaveTip, { passive: true });

// ----- pieces that sections share -----
const sections = [];

function section(id, title, ...children) {
  sections.push([id, title]);
  const heading = el("h2", { id: `${id}-title` }, title);
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
  document.getElementById("main").append(node);
  return node;
}

function table(headings, rows, caption, classes) {
  const head = headings.map((heading) => el("th", { scope: "col" }, heading));
  const body = rows.map((row) =>
    el("tr", null, row.map((cell, at) => (at === 0 ? el("th", { scope: "row" }, cell) : el("td", null, cell)))),
  );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: classes }, el("caption", null, caption), el("thead", null, el("tr", null, head)), el("tbody", null, body)),
  );
}

function numbers(make) {
  const details = el("details", { class: "numbers" }, el("summary", null, "The numbers"));
  const fillIn = () => {
    if (details.children.length === 1) details.append(make());
  };
  details.addEventListener("toggle", fillIn);
  details.fillIn = fillIn;
  return details;
}

function choose(label, options, chosen, change) {
  const list = el(
    "select",
    { onchange: () => change(list.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
  );
  return el("label", { class: "control" }, el("span", null, label), list);
}

function switches(label, options, chosen, change) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value }, text),
  );
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      change(button.dataset.value);
    });
  }
  return el("div", { class: "control switches", role: "group", "aria-label": label }, el("span", null, label), buttons);
}
