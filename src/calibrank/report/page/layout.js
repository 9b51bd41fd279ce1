// What surrounds the sections of every page: title, contents, redrawing and printing.
function drawTop(title, source, rows) {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const toggle = el("button", { type: "button", id: "theme" }, "Dark");
  const showState = () => toggle.setAttribute("aria-pressed", String(isDark()));
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showState();
  });
  prefersDark.addEventListener("change", showState);
  showState();
  const subtitle = el("p", { class: "small" }, nameOf(source), `, ${count(rows)} rows`);
  const heading = el("div", null, el("h1", null, title), subtitle);
  document.getElementById("top").append(heading, toggle);
}

function drawContents() {
  const links = sections.map(({ id, title }) =>
    el("li", null, el("a", { href: `#${id}` }, title)),
  );
  document.getElementById("contents").append(el("ol", null, links));
}

function versionsText(versions) {
  return Object.entries(versions)
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
}

// Open the explanations while printing, because paper cannot be clicked.
function openDetailsForPrint() {
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open], .numbers)")) {
      opened.push(details);
      details.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const details of opened.splice(0)) details.open = false;
  });
}

function finish() {
  drawContents();
  for (const drawing of drawings) drawing.redraw();
  const observer = new ResizeObserver(() => {
    for (const drawing of drawings) drawing.resize();
  });
  observer.observe(document.getElementById("main"));
  openDetailsForPrint();
  document.documentElement.dataset.ready = "yes";
}
