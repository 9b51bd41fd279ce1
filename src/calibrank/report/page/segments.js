function drawSegments() {
  if (!data.segments.length) {
    section("segments", "Segments", el("p", null, "Name an item column (--item), a user column (--user) or any other (--segment) to see calibration by segment."));
    return;
  }
  const shown = 6;

  function gauge(row, most) {
    const x = linear(0, most, 4, 156);
    const [value, low, high] = row.observed;
    const label = `predicted ${percent(row.predicted)}, liked ${percent(value)} (${between(low, high, percent)})`;
    return svg("svg", { class: "segment", viewBox: "0 0 160 18", role: "img", "aria-label": label },
      svg("line", { x1: 4, x2: 156, y1: 9, y2: 9, class: "base" }),
      svg("line", { x1: x(Math.max(0, low)), x2: x(Math.min(most, high)), y1: 9, y2: 9, class: "reach" }),
      svg("circle", { cx: x(Math.min(most, value)), cy: 9, r: 4, class: "dot after" }),
      svg("line", { x1: x(row.predicted), x2: x(row.predicted), y1: 2, y2: 16, class: "promise" }));
  }

  function tableOf(one) {
    const most = 1.05 * Math.max(...one.rows.flatMap((row) => [row.predicted, row.observed[2]]));
    const rows = one.rows.map((row, at) =>
      el("tr", { class: row.miss > 0 ? "off" : null, hidden: at >= shown },
        el("th", { scope: "row" }, nameOf(row.name)),
        el("td", null, percent(row.predicted)),
        el("td", null, el("span", { class: "value" }, percent(row.observed[0])), el("span", { class: "interval" }, between(row.observed[1], row.observed[2], percent))),
        el("td", { class: "wide" }, gauge(row, most)),
        el("td", null, row.miss > 0 ? (row.gap[0] > 0 ? "too low" : "too high") : "within chance"),
        el("td", null, count(row.rows)),
        missing(row.users) ? null : el("td", null, count(row.users))));
    const heads = ["segment", "predicted", "liked", "predicted | and liked •", "verdict", "rows"].concat(missing(one.rows[0].users) ? [] : ["users"]);
    const more = rows.length > shown ? el("button", { type: "button", class: "more" }, `Show all ${rows.length}`) : null;
    if (more) {
      more.addEventListener("click", () => {
        rows.forEach((row) => (row.hidden = false));
        more.remove();
      });
    }
    return el("div", { class: "segmented" },
      el("h3", null, nameOf(one.title)),
      el("p", { class: "small" }, one.note),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Calibration by ${one.title}` },
        el("table", null, el("caption", null, `Calibration by ${one.title}, worst first`), el("thead", null, el("tr", null, heads.map((heading) => el("th", { scope: "col", class: heading.includes("|") ? "wide" : null }, heading)))), el("tbody", null, rows))),
      more);
  }

  section(
    "segments",
    "Segments",
    el("p", null, "A map may be right on average and wrong for some. Segments whose gap chance does not explain come first, the widest sure gap on top."),
    data.segments.map(tableOf),
  );
}
