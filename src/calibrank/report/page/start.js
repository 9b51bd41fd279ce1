function drawProvenance() {
  const about = data.about;
  const entries = [
    ["Table", nameOf(about.source)],
    ["Fingerprint", el("code", null, about.fingerprint)],
    ["Size", `${count(about.rows)} rows` + (missing(about.users) ? "" : `, ${count(about.users)} users`) + (missing(about.items) ? "" : `, ${count(about.items)} items`)],
    ["Evidence", about.evidence],
    ["Versions", Object.entries(about.versions).map(([name, version]) => `${name} ${version}`).join(", ")],
    ["Made", about.made],
    ["Make it again", el("code", { id: "command" }, about.command)],
  ];
  section("provenance", "Provenance", el("dl", { class: "pairs" }, entries.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
}

function drawTop() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const toggle = el("button", { type: "button", id: "theme", "aria-pressed": String(isDark()) }, "Dark");
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    toggle.setAttribute("aria-pressed", String(isDark()));
  });
  dark.addEventListener("change", () => toggle.setAttribute("aria-pressed", String(isDark())));
  const { source, rows } = data.about;
  document.getElementById("top").append(el("div", null, el("h1", null, "Calibration report"), el("p", { class: "small" }, nameOf(source), `, ${count(rows)} rows`)), toggle);
}

function drawContents() {
  const links = sections.map(([id, title]) => el("li", null, el("a", { href: `#${id}` }, title)));
  document.getElementById("contents").append(el("ol", null, links));
}

function begin() {
  drawTop();
  for (const draw of [drawHeadline, drawReliability, drawScores, drawMethods, drawThreshold, drawExplorer, drawSegments, drawProvenance]) draw();
  drawContents();
  for (const [, , node] of drawings) node.redraw();
  if (threshold.update) threshold.update();
  const watch = new ResizeObserver(() => drawings.forEach(([, redraw]) => redraw()));
  watch.observe(document.getElementById("main"));
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      closed.push(details);
      if (details.fillIn) details.fillIn();
      details.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const details of closed.splice(0)) details.open = false;
  });
  document.documentElement.dataset.ready = "yes";
}

begin();
