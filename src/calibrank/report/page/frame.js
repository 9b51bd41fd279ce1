// What every page has around its sections: heading, contents, drawing at the right width, printing with explanations opened.
function drawTop(title, source, rows) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const toggle = el("button", { type: "button", id: "theme", "aria-pressed": String(isDark()) }, "Dark");
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    toggle.setAttribute("aria-pressed", String(isDark()));
  });
  dark.addEventListener("change", () => toggle.setAttribute("aria-pressed", String(isDark())));
  document.getElementById("top").append(el("div", null, el("h1", null, title), el("p", { class: "small" }, nameOf(source), `, ${count(rows)} rows`)), toggle);
}

function drawContents() {
  const links = sections.map(([id, title]) => el("li", null, el("a", { href: `#${id}` }, title)));
  document.getElementById("contents").append(el("ol", null, links));
}

function finish() {
  drawContents();
  for (const [, , node] of drawings) node.redraw();
  const watch = new ResizeObserver(() => drawings.forEach(([, redraw]) => redraw()));
  watch.observe(document.getElementById("main"));
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open], .numbers)")) {
      closed.push(details);
      details.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const details of closed.splice(0)) details.open = false;
  });
  document.documentElement.dataset.ready = "yes";
}
